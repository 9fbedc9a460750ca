//! Table 1 of ROMA: mean TCP throughput between nine sites, June 2003.

use crate::Graph;
use thalweg_units::Rate;

/// The senders of the columns; all but the last are receivers as well.
pub const HOSTS: [&str; 9] =
    ["BU", "UCLA", "UTK", "Arizona", "GT", "Duke", "Cornell", "Berkeley", "UW"];

/// Mbit/s. Rows are receivers, columns are senders, and the diagonal is between two hosts of a site.
pub const TABLE: [[f64; 9]; 8] = [
    [64.1, 12.6, 19.0, 16.0, 27.0, 39.0, 21.3, 6.9, 8.7],
    [17.9, 88.0, 18.8, 20.3, 20.5, 14.5, 14.3, 38.6, 39.0],
    [47.0, 18.8, 98.0, 21.0, 46.3, 39.0, 29.1, 18.7, 12.8],
    [21.3, 21.7, 21.0, 92.0, 22.2, 15.4, 19.0, 21.7, 19.3],
    [53.9, 18.8, 74.0, 22.8, 92.0, 45.0, 34.5, 18.8, 17.1],
    [40.9, 10.2, 26.8, 10.3, 31.8, 92.0, 15.4, 9.5, 9.2],
    [33.1, 14.5, 30.7, 19.0, 28.7, 15.4, 98.0, 16.3, 16.5],
    [10.1, 30.3, 12.6, 17.1, 13.4, 9.4, 11.4, 98.1, 38.4],
];

/// The graph of the table's pairs, with its rates times `scale`.
pub fn table_1(scale: f64) -> Graph {
    let mut graph = Graph::new(HOSTS.len());
    for (to, row) in TABLE.iter().enumerate() {
        for (from, mbps) in row.iter().enumerate().filter(|(from, _)| *from != to) {
            graph.set(from, to, Some(Rate::from_mbps(scale * mbps)));
        }
    }
    graph
}
