//! Reports of utilization, in each form.

use super::*;

fn units(value: &str, hits: u64) -> Option<u16> {
    Utilization::parse(value, hits).ok().map(Utilization::units)
}

#[test]
fn a_report_is_a_number_a_percentage_or_the_hits_in_a_unit() {
    for (value, hits, expected) in [
        ("0.83", 1, 8_300),
        (" .5 ", 1, 5_000),
        ("0", 1, 0),
        ("1", 1, 10_000),
        ("83%", 1, 8_300),
        ("99.9 %", 1, 9_990),
        ("percent", 83, 8_300),
        ("percent", 0, 0),
        ("per_mille", 835, 8_350),
        ("per_mille", u64::MAX, 20_000),
        ("7.5", 1, 20_000),
    ] {
        assert_eq!(units(value, hits), Some(expected), "{value}");
    }
    for wrong in ["", "-", "-0.5", "nan", "inf", "abc", "1e999999999999999999999999999999", "0.5.5", "%"] {
        assert_eq!(units(wrong, 7), None, "{wrong}");
    }
}

#[test]
fn an_orca_report_has_the_applications_utilization_else_that_of_the_cpu() {
    for (report, expected) in [
        ("TEXT cpu_utilization=0.3,application_utilization=0.8", Some(8_000)),
        ("cpu_utilization=0.3", Some(3_000)),
        (r#"JSON {"cpu_utilization": 0.25, "mem_utilization": 0.9}"#, Some(2_500)),
        (r#"{"application_utilization":0,"cpu_utilization":0.5}"#, Some(5_000)),
        (r#"JSON {"application_utilization":0}"#, Some(0)),
        ("TEXT mem_utilization=0.3", None),
        ("TEXT named_metrics.my_cpu_utilization=0.3", None),
        ("TEXT named_metrics.cpu_utilization=0.3", None),
        ("TEXT cpu_utilization=x", None),
    ] {
        assert_eq!(units(report, 1), expected, "{report}");
    }
}
