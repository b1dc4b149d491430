//! Text tables.

/// Formats rows under a header, with columns as wide as their widest text.
pub(super) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let widths: [usize; N] = std::array::from_fn(|column| {
        let texts = rows.iter().filter_map(|row| row.get(column)).map(|text| text.chars().count());
        texts.chain(head.get(column).map(|text| text.len())).max().unwrap_or_default()
    });
    let line = |texts: &[String; N]| {
        let padded = texts.iter().zip(widths).map(|(text, width)| format!("{text:width$}"));
        let line = padded.collect::<Vec<_>>().join("  ");
        format!("{}\n", line.trim_end())
    };
    let head = line(&head.map(str::to_owned));
    rows.iter().fold(head, |table, row| table + &line(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_text() {
        let row = |a: &str, b: &str| [a.to_owned(), b.to_owned()];
        let expected = "A     BB\nwide  x\näöü\n";
        assert_eq!(table(["A", "BB"], &[row("wide", "x"), row("äöü", "")]), expected);
    }
}
