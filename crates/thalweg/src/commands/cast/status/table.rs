//! A table that leaves out empty columns.

use crate::commands::text::aligned;

/// The text of an empty cell.
pub const NOTHING: &str = "-";

/// Formats rows below their heads, without empty columns.
pub fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let kept: Vec<usize> = (0..N).filter(|&i| rows.iter().any(|row| row[i] != NOTHING)).collect();
    // Empty columns move to the end, where they are trailing blanks.
    let order = |row: [String; N]| -> [String; N] {
        std::array::from_fn(|i| kept.get(i).map(|&from| row[from].clone()).unwrap_or_default())
    };
    let head = order(head.map(str::to_owned));
    let rows: Vec<[String; N]> = rows.iter().cloned().map(order).collect();
    aligned(std::array::from_fn(|i| head[i].as_str()), &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_column_is_left_out() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        let text = table(["A", "B", "C"], &[row(["1", "-", "x"]), row(["-", "-", "yy"])]);
        assert_eq!(text, "A  C\n1  x\n-  yy\n");
    }
}
