//! The table of casts to this host's node.

use super::{bytes, known_rate, left, now, number, some, table::table};
use crate::commands::{
    gather::messages::{rate, size},
    text::{counted, listed, plain},
};
use serde_json::Value;

/// Returns the table. If there are none and `is_short`, because something else is shown, the text is empty.
pub fn text(casts: &Value, is_short: bool) -> String {
    let all = || casts["casts"].as_array().into_iter().flatten();
    let rows: Vec<_> = all().map(row).collect();
    if rows.is_empty() {
        return match casts["inboxes"].as_u64() {
            _ if is_short => String::new(),
            Some(0) | None => "none: this node accepts no casts (`[cast] inbox` in its \
                               settings)\n"
                .to_owned(),
            Some(_) => "no casts\n".to_owned(),
        };
    }
    let head = [
        "NAME", "FROM", "STATE", "HELD", "OF", "RATE", "MIN-HOP", "LEFT", "MISSED", "RING",
        "PARENTS", "CHILDREN", "GIVEN",
    ];
    let ways: String = all().filter_map(way).collect();
    table(head, &rows) + &ways
}

fn row(cast: &Value) -> [String; 13] {
    let text = |key: &str| cast[key].as_str().map_or_else(|| "-".to_owned(), plain);
    let parents = cast["parents"].as_array().into_iter().flatten();
    let its = parents.filter(|parent| parent["is_now"] == true);
    let parents: Vec<(&str, u64)> =
        its.filter_map(|p| Some((p["name"].as_str()?, number(p, "rate_bps")))).collect();
    let given = parents.iter().map(|(_, bps)| bps).sum();
    let children = cast["children"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let state = match cast["why"].as_str() {
        Some(why) => format!("failed: {}", plain(why)),
        None => text("state"),
    };
    [
        text("name"),
        text("from"),
        state,
        size(number(cast, "held_bytes")),
        size(number(cast, "total_bytes")),
        match cast["state"] == "complete" {
            true => known_rate(&cast["average_bps"]),
            false => now(cast, given),
        },
        known_rate(&cast["min_hop_bps"]),
        left(&cast["left_seconds"]),
        some(number(cast, "missed_symbols")),
        bytes(number(cast, "ring_peak_bytes")),
        listed(parents.iter().map(|(name, bps)| format!("{name} {}", rate(*bps)))),
        listed(children),
        bytes(number(cast, "served_bytes")),
    ]
}

/// Describes its path in the planned tree, if that is more than one leg from the source.
fn way(cast: &Value) -> Option<String> {
    let way: Vec<&str> = cast["way"].as_array()?.iter().filter_map(Value::as_str).collect();
    let name = plain(cast["name"].as_str()?);
    let others = match number(cast, "receivers").saturating_sub(1) {
        0 => "no other node receives it".to_owned(),
        1 => "1 other receives it".to_owned(),
        more => format!("{} receive it", counted(more, "other")),
    };
    let way = (way.len() > 1).then(|| way.join(" → "))?;
    Some(format!("{name}: planned path {way} → this node; {others}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_receiver_shows_its_path_in_the_tree() {
        let mut cast = json!({
            "name": "image", "from": "lab", "state": "fetching", "held_bytes": 2_000_000,
            "total_bytes": 4_000_000, "rate_bps": 8_000_000, "min_hop_bps": 10_000_000,
            "left_seconds": 2.0, "missed_symbols": 3, "ring_peak_bytes": 1_000_000, "way": ["lab", "fra"], "receivers": 3,
            "parents": [{"name": "fra", "is_now": true, "rate_bps": 8_000_000},
                        {"name": "lab", "is_now": false, "rate_bps": 0}],
            "children": ["ber"], "served_bytes": 1_000_000,
        });
        let shown = text(&json!({ "inboxes": 1, "casts": [&cast] }), false);
        let lines: Vec<&str> = shown.lines().collect();
        let cells: Vec<&str> =
            lines[1].split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
        let expected = [
            "image",
            "lab",
            "fetching",
            "2 MB",
            "4 MB",
            "8 Mbit/s",
            "10 Mbit/s",
            "2.0 s",
            "3",
            "1 MB",
            "fra 8 Mbit/s",
            "ber",
            "1 MB",
        ];
        assert_eq!(cells, expected, "{shown}");
        assert_eq!(lines[2], "image: planned path lab → fra → this node; 2 others receive it");

        cast["receivers"] = json!(2);
        cast["state"] = json!("complete");
        cast["average_bps"] = json!(3_000_000);
        let shown = text(&json!({ "inboxes": 1, "casts": [&cast] }), false);
        assert!(
            shown.contains(" 3 Mbit/s  10 Mbit/s") && !shown.contains(" 8 Mbit/s  10"),
            "{shown}"
        );
        assert!(shown.ends_with("1 other receives it\n"), "{shown}");
        cast["state"] = json!("fetching");
        cast["rate_bps"] = json!(0);
        let shown = text(&json!({ "inboxes": 1, "casts": [&cast] }), false);
        assert!(shown.contains(" 8 Mbit/s  10 Mbit/s"), "what the parents give: {shown}");
    }
}
