//! `benches/scale.sh` divides processors, measures and computes as it states.

use std::process;

use crate::support::prelude::*;

fn run(program: &str, arguments: &[&str]) -> String {
    output_of(Command::new(program).args(arguments).current_dir(project("")))
}

/// The fields of each line.
fn fields(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split('\t').collect()).collect()
}

#[test]
fn a_plan_uses_every_processor_once_and_reaches_eight_shards() {
    for processors in [4_usize, 8, 16, 64] {
        let plan = run("benches/scale.sh", &["--plan", &processors.to_string()]);
        let rows = fields(&plan);
        let number = |row: &[&str], at: usize| row[at].parse::<usize>().expect("a number");
        for row in &rows {
            let [instances, service, shards, redis, load] = [2, 3, 4, 5, 6].map(|at| number(row, at));
            assert_eq!(service + redis + load, processors, "{row:?}");
            assert!(service >= instances && redis == shards && load > 0, "{row:?}");
        }
        let shards = rows.iter().filter(|row| row[0] == "shards").map(|row| number(row, 4));
        let all: &[usize] = &[1, 2, 3, 4, 6, 8];
        let fit: Vec<_> = all.iter().copied().filter(|count| *count <= processors / 2).collect();
        assert_eq!(shards.collect::<Vec<_>>(), fit);
    }
    let budgets = run("benches/scale.sh", &["--plan", "16"]);
    let budgets = fields(&budgets).into_iter().filter(|row| row[0] == "budget");
    assert_eq!(budgets.map(|row| row[6].to_owned()).collect::<Vec<_>>(), ["8", "4"], "8 and 12 of 16");
    // Too few to divide: the roles share them.
    let small = run("benches/scale.sh", &["--plan", "2"]);
    assert!(fields(&small).iter().all(|row| row[5..] == ["0", "0"]), "{small}");
}

/// Medians of a machine of 16 processors on which a decision takes these µs for each doubling of the shards.
fn medians(load_busy: &str) -> String {
    let head = "series\tworkload\tinstances\tservice\tshards\tredis\tload\tdecisions\trate\tservice_us\tredis_us\t\
                load_us\tservice_busy\tredis_busy\tload_busy\tdegraded\terrors\tp50\tp99\topen_rate\topen_p50\topen_p99";
    let row = |shards: f64, service: u32, load: u32| {
        let doublings = shards.log2();
        let (of_service, of_redis) = (6.0 + doublings / 2.0, 4.0 + doublings);
        let rate = (shards * 1e6 / of_redis).min(f64::from(service) * 1e6 / of_service);
        format!(
            "shards\tstrict\t1\t{service}\t{shards}\t{shards}\t{load}\t1\t{rate}\t{of_service}\t{of_redis}\t3\t0.5\t1\t\
             {load_busy}\t0\t0\t500\t900\t1\t200\t700"
        )
    };
    [head.to_owned(), row(1.0, 9, 6), row(2.0, 8, 6), row(4.0, 7, 5), row(8.0, 4, 4)].join("\n") + "\n"
}

fn format_by(script: &str, medians: &str, directory: &Path) -> String {
    let file = directory.join("medians.tsv");
    fs::write(&file, medians).expect("writable");
    let script = format!("benches/scale/{script}.awk");
    let file = file.to_str().expect("a name");
    run("awk", &["-f", "benches/scale/model.awk", "-f", &script, file])
}

#[test]
fn the_model_predicts_a_machine_that_follows_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let table = format_by("table", &medians("0.5"), directory.path());
    let model = "| strict | 6.00 + 0.50 log2(shards) µs | 4.00 + 1.00 log2(shards) µs |";
    assert!(table.contains(model), "{table}");
    let predictions = [
        "| 9 | 1 | Redis | 250,000 | 250,000 | 1.00 |",
        "| 8 | 2 | Redis | 400,000 | 400,000 | 1.00 |",
        "| 7 | 4 | Redis | 666,666 | 666,666 | 1.00 |",
        // Four processors of tollgate are full before eight shards.
        "| 4 | 8 | service | 533,333 | 533,333 | 1.00 |",
    ];
    for prediction in predictions {
        assert!(table.contains(prediction), "{prediction} in {table}");
    }
    // Their busiest shard is full.
    assert!(!table.contains("| at least |") && !table.contains("| nothing full |"), "{table}");
    let limited = format_by("table", &medians("0.8"), directory.path());
    assert_eq!(limited.matches("| at least |").count(), 4, "{limited}");
    let plot = format_by("plot", &medians("0.5"), directory.path());
    assert_eq!(plot.matches("<circle").count(), 4, "{plot}");
    assert!(plot.starts_with("<svg ") && plot.ends_with("</svg>\n"), "{plot}");
}

#[test]
fn a_quick_run_measures_every_role_and_writes_its_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().to_str().expect("a name");
    // Ports that no test is given, and other runs on this machine hardly.
    let port = (5_000 + process::id() % 14 * 300).to_string();
    let (tollgate, load) = (env!("CARGO_BIN_EXE_tollgate"), tool("tollgate-load"));
    let load = load.get_program().to_str().expect("a name");
    run(
        "benches/scale.sh",
        &["--quick", "--tollgate", tollgate, "--load", load, "--port", &port, "--out", out],
    );
    let rows = fs::read_to_string(directory.path().join("rows.tsv")).expect("it is written");
    let rows = fields(&rows);
    assert_eq!(rows.len(), 4, "{rows:?}");
    for row in &rows[1..] {
        let of = |name: &str| {
            let at = rows[0].iter().position(|column| *column == name).expect("a column");
            row[at].parse::<f64>().expect("a number")
        };
        assert_eq!(row.len(), rows[0].len(), "{row:?}");
        assert!(of("decisions") > 0.0 && of("service_us") > 0.0 && of("load_us") > 0.0, "{row:?}");
        assert_eq!(of("redis_us") > 0.0, of("shards") > 0.0, "{row:?}");
        assert!(of("open_rate") > 0.0, "{row:?}");
    }
    for (name, part) in
        [("scale.md", "| shards | strict | 2 |"), ("scale.svg", "</svg>"), ("medians.tsv", "")]
    {
        let written = fs::read_to_string(directory.path().join(name)).expect("it is written");
        assert!(written.contains(part), "{name}: {written}");
    }
}
