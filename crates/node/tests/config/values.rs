//! The meaning of correct files.

use std::time::Duration;
use thalweg_base::space::KeepFree;
use thalweg_node::config::{ApiListen, Config};
use thalweg_relay::EgressPolicy;
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::mesh::MemberPattern;
use thalweg_wire::mesh::{LegKind, PortRange, Quota, Rule};

/// The example, with the lines that are commented out for lack of a default.
pub fn full() -> String {
    let uncommented = |line: &str| match line.strip_prefix("# ") {
        Some(key) if key.contains(" = ") || key.starts_with("[[") => key.to_owned(),
        _ => line.to_owned(),
    };
    let lines: Vec<_> = Config::example().lines().map(uncommented).collect();
    lines.join("\n")
}

#[test]
fn the_example_is_the_defaults() {
    assert_eq!(Config::parse(Config::example()), Ok(Config::default()));
    assert_eq!(Config::parse(""), Ok(Config::default()));
    assert_eq!(Config::default().check(), []);
}

#[test]
fn the_commented_lines_of_the_example_are_correct_too() {
    let config = Config::parse(&full()).unwrap();
    let (mbps, gb) = (1_000_000, 1_000_000_000);
    let quota = Quota::from(config.relay.quota);
    assert_eq!(quota.connections, Some(200));
    assert_eq!(quota.rate, Some(Rate::from_bps(100 * mbps)));
    assert_eq!(quota.bytes_per_day, Some(ByteSize::from_bytes(50 * gb)));
    assert_eq!(config.socks.listen, Some("127.0.0.1:1080".parse().unwrap()));
    assert_eq!(config.metrics.listen, Some("127.0.0.1:9373".parse().unwrap()));
    assert_eq!(config.measure.max_rate, Some(Rate::from_bps(100 * mbps)));
    assert_eq!(config.measure.relay_capacity, Some(Rate::from_bps(1000 * mbps)));
    let rule = Rule {
        client: Some("guest".parse().unwrap()),
        relay: Some("country=de".parse().unwrap()),
        deny_to: vec!["198.51.100.0/24".parse().unwrap()],
        ports: vec![PortRange::one(443)],
        avoid: ["provider=x".parse().unwrap()].into(),
        quota: Quota {
            connections: Some(20),
            rate: Some(Rate::from_bps(10 * mbps)),
            bytes_per_day: Some(ByteSize::from_bytes(5 * gb)),
        },
    };
    assert_eq!(config.oracle.rules(), [rule]);
}

#[test]
fn turning_measurements_off_and_limiting_them_are_separate_settings() {
    let off = Config::parse("[measure]\nenabled = false\npassive = false").unwrap().measure;
    assert!(!off.enabled && !off.passive);
    let both = Config::parse("[measure]\nenabled = false\noverlay = true").unwrap_err();
    assert!(both[0].to_string().starts_with("3:1: measure.overlay: "), "{both:?}");
    let text = "[measure]\nmax_bytes_per_day = \"100 MB\"\nmax_rate = \"5 Mbit/s\"";
    let bounded = Config::parse(text).unwrap().measure;
    assert_eq!(bounded.max_bytes_per_day, ByteSize::from_bytes(100_000_000));
    assert_eq!(bounded.max_rate, Some(Rate::from_mbps(5.0)));
    let text = "[measure]\nmax_bytes_per_day = \"0 B\"\nmax_rate = \"0 bit/s\"\nrelay_capacity = \"0 bit/s\"";
    let problems = Config::parse(text).unwrap_err();
    let told: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].starts_with("2:1: measure.max_bytes_per_day: "), "{told:?}");
    assert!(told[1].contains("write `enabled = false`"), "{told:?}");
    assert!(told[2].contains("leave it out"), "{told:?}");
}

#[test]
fn the_api_on_loopback_is_on_by_default_and_can_be_off() {
    let listen = |text: &str| Config::parse(text).unwrap().api.listen;
    let at = |text: &str| ApiListen::At(text.parse().unwrap());
    assert_eq!(listen(""), at("127.0.0.1:7374"));
    assert_eq!(listen("[api]"), at("127.0.0.1:7374"));
    assert_eq!(listen("[api]\nlisten = \"off\""), ApiListen::Off);
    assert_eq!(listen("[api]\nlisten = \"[::1]:0\""), at("[::1]:0"));
    for (text, told) in [
        ("[api]\nlisten = \"0.0.0.0:7374\"", "reachable from other hosts"),
        ("[api]\nlisten = \"no\"", "or \"off\""),
        ("[api]\nlisten = \"127.0.0.1:80\"\n[metrics]\nlisten = \"127.0.0.1:80\"", "given twice"),
    ] {
        let problems = Config::parse(text).unwrap_err();
        assert!(problems[0].to_string().contains(told), "{problems:?}");
    }
    // The default gives way to an address that was chosen.
    assert!(Config::parse("listen = [\"127.0.0.1:7374\"]").is_ok());
}

#[test]
fn a_relay_is_configured_by_its_section() {
    let text = r#"
        [relay]
        max_connections = 7
        idle = "90 s"
        allow_to = ["10.0.0.0/8", "192.0.2.1"]
        deny_to = ["10.1.0.0/16"]
        ports = [80, "8000-8999"]
    "#;
    let config = Config::parse(text).unwrap();
    let relay = config.relay.to_relay("127.0.0.1:0".parse().unwrap());
    assert_eq!((relay.max_connections, relay.idle), (7, Duration::from_secs(90)));
    assert_eq!(relay.connect, Duration::from_secs(10));
    let passes = |to: &str| EgressPolicy::check(&relay.egress, to.parse().unwrap()).is_ok();
    for (to, pass) in [
        ("10.2.0.1:80", true),
        ("10.2.0.1:8500", true),
        ("10.2.0.1:443", false),
        ("10.1.0.1:80", false),
        ("192.0.2.1:80", true),
        ("192.168.0.1:80", false),
    ] {
        assert_eq!(passes(to), pass, "{to}");
    }
}

#[test]
fn socks_gets_its_terms() {
    let text = r#"
        [socks]
        listen = "[::1]:1080"
        via = ["r1", "r1+r2", "direct", "192.0.2.1:1080"]
        legs = "open"
        avoid = ["country=xx"]
    "#;
    let socks = Config::parse(text).unwrap().socks;
    assert_eq!(socks.terms().leg, LegKind::Open);
    assert_eq!(socks.terms().avoid, ["country=xx".parse().unwrap()].into());
    assert_eq!(socks.via.len(), 4);
}

#[test]
fn a_list_of_one_needs_no_brackets() {
    let config = Config::parse("listen = \"127.0.0.1:7373\"\n[relay]\nports = 8080").unwrap();
    assert_eq!(config.listen, ["127.0.0.1:7373".parse().unwrap()]);
    assert_eq!(config.relay.ports, [PortRange::one(8080)]);
}

#[test]
fn a_missing_file_means_the_defaults_only_if_it_may_be_missing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    assert_eq!(Config::load_or_default(&file).unwrap(), Config::default());
    let error = Config::load(&file).unwrap_err().to_string();
    assert!(error.contains("cannot read") && error.contains("config.toml"), "{error}");
    std::fs::write(&file, "[log]\nformat = \"json\"").unwrap();
    assert_ne!(Config::load_or_default(&file).unwrap(), Config::default());
    std::fs::write(&file, [0xff, 0xfe]).unwrap();
    assert!(Config::load_or_default(&file).is_err());
}

#[test]
fn files_are_offered_to_members_by_name_by_tag_or_to_all() {
    let text = "[files]\noffer = [{ path = \"/data\", to = [\"fra\", \"@lab\"] }, { path = \"/pub\", to = \"*\" }]\n\
                accept = [{ path = \"/inbox\", from = [\"@site=a\"] }]\nspool_bytes = \"1 GB\"";
    let files = Config::parse(text).unwrap().files;
    let whom =
        |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect::<Vec<MemberPattern>>();
    assert_eq!(files.offer[0].to, whom(&["fra", "@lab"]));
    assert_eq!((files.offer[1].path.to_str(), &files.offer[1].to), (Some("/pub"), &whom(&["*"])));
    assert_eq!(files.accept[0].from, whom(&["@site=a"]));
    assert_eq!(files.spool_bytes, ByteSize::from_bytes(1_000_000_000));
    let limits = thalweg_files::Settings::from(&files).accept[0].limits;
    assert_eq!(limits, thalweg_files::Limits::default());
    let text = "[files]\nkeep_free = \"5 GB\"\naccept = [{ path = \"/a\", from = \"*\", max_bytes = \"1 TB\" }, \
                { path = \"/b\", from = \"*\", max_entries = 7, max_depth = 3, keep_free = \"1 GB\" }]";
    let files = Config::parse(text).unwrap().files;
    let [a, b] = &thalweg_files::Settings::from(&files).accept[..] else { panic!("{files:?}") };
    let bytes = |n: u64| ByteSize::from_bytes(n * 1_000_000_000);
    assert_eq!(
        (a.limits.max_bytes, a.limits.keep_free),
        (Some(bytes(1000)), KeepFree::Bytes(bytes(5)))
    );
    assert_eq!((b.limits.max_entries, b.limits.max_depth), (7, 3));
    assert_eq!(b.limits.keep_free, KeepFree::Bytes(bytes(1)));
    assert_eq!(whom(&["*"])[0].to_string() + &whom(&["@lab"])[0].to_string(), "*@lab");
    for (text, says) in [
        ("offer = [{ path = \"data\", to = \"*\" }]", "absolute"),
        ("offer = [{ path = \"/a/../b\", to = \"*\" }]", "`..`"),
        ("offer = [{ path = \"/proc\", to = \"*\" }]", "files of the kernel"),
        ("offer = [{ path = \"/data\", to = [] }]", "no members"),
        ("offer = [{ path = \"/data\" }]", "`to`"),
        ("offer = [{ path = \"/data\", to = \"A B\" }]", "name"),
        ("accept = [{ path = \"inbox\", from = \"*\" }]", "absolute"),
        ("max_channels = 0", "offer no files"),
    ] {
        let problems = Config::parse(&format!("[files]\n{text}")).unwrap_err();
        assert!(problems[0].what.contains(says), "{text}: {problems:?}");
    }
}

/// The text of each table in the example: its key, and all lines up to the next table.
fn tables() -> Vec<(String, String)> {
    let mut found = vec![(String::new(), String::new())];
    for line in Config::example().lines() {
        let bare = line.trim_start_matches("# ");
        let key = bare.strip_prefix('[').and_then(|key| key.strip_suffix(']'));
        if let Some(key) = key.filter(|key| !key.contains(' ')) {
            found.push((key.trim_matches(['[', ']']).to_owned(), String::new()));
        }
        if let Some((_, text)) = found.last_mut() {
            *text += &format!("{line}\n");
        }
    }
    found
}

/// The keys of a table, as the reader lists them for an unknown one.
fn known(table: &str, is_list: bool) -> Vec<String> {
    let head = match (table, is_list) {
        ("", _) => String::new(),
        (table, true) => format!("[[{table}]]\n"),
        (table, false) => format!("[{table}]\n"),
    };
    let problems = Config::parse(&format!("{head}qqqqqqqqqqqq = 1\n")).unwrap_err();
    let told = problems.iter().find(|problem| problem.what.contains("unknown key")).unwrap();
    told.what.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_example_has_every_key() {
    let tables = tables();
    for (table, _) in &tables {
        let is_list = Config::example().contains(&format!("[[{table}]]"));
        // A table may have several examples.
        let its = tables.iter().filter(|(other, _)| other == table);
        let text: String = its.map(|(_, text)| text.as_str()).collect();
        let keys = known(table, is_list);
        assert!(!keys.is_empty(), "{table}");
        for key in keys {
            let below = if table.is_empty() { key.clone() } else { format!("{table}.{key}") };
            let is_table = tables.iter().any(|(other, _)| *other == below);
            let is_there =
                text.contains(&format!("{key} = ")) || text.contains(&format!("`{key}`"));
            assert!(is_table || is_there, "`{below}` is not in the example");
        }
    }
}
