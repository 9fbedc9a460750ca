//! A table that leaves out the columns in which nothing stands.

use crate::commands::text::aligned;

/// What a cell holds if there is nothing to say.
pub const NOTHING: &str = "-";

/// Rows below their heads; of columns only those in which something stands.
pub fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let kept: Vec<usize> = (0..N).filter(|&i| rows.iter().any(|row| row[i] != NOTHING)).collect();
    // What is left out stands behind the last column, where it is no more than blanks.
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
    fn a_column_without_anything_is_left_out() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        let text = table(["A", "B", "C"], &[row(["1", "-", "x"]), row(["-", "-", "yy"])]);
        assert_eq!(text, "A  C\n1  x\n-  yy\n");
    }
}
