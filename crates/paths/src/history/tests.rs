use super::*;
use proptest::prelude::*;
use std::{fs, os::unix::fs::PermissionsExt as _, thread};

const ORIGIN: &str = "http://www.example:80";
const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

/// Seconds after some day in 2026.
fn at(seconds: u64) -> WallTime {
    WallTime::from_unix_nanos((1_790_000_000 + seconds) * 1_000_000_000)
}

fn seen(path: &str, mbps: f64) -> PathObservation {
    PathObservation {
        path: path.into(),
        rate: Rate::from_mbps(mbps),
        setup: Duration::from_millis(40),
        bound: Bound::Exact,
    }
}

fn at_least(path: &str, mbps: f64) -> PathObservation {
    PathObservation { bound: Bound::AtLeast, ..seen(path, mbps) }
}

fn file() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("state/history.json");
    (directory, file)
}

fn rate(history: &History, path: &str, now: WallTime) -> Option<Rate> {
    history.prior(ORIGIN, path, now).map(|prior| prior.rate)
}

fn mbps(rate: f64) -> Option<Rate> {
    Some(Rate::from_mbps(rate))
}

#[test]
fn a_saved_history_is_readable_by_the_next_process_and_private() {
    let (_directory, file) = file();
    let mut history = History::open(&file);
    assert_eq!(history.problem(), None);
    history.learn("http://me:secret@www.example:80/private?token=1", &[seen("fra", 8.0)], at(0));
    history.save().unwrap();
    let next = History::open(&file);
    let prior = Prior { rate: Rate::from_mbps(8.0), setup: Duration::from_millis(40) };
    assert_eq!(next.prior(ORIGIN, "fra", at(60)), Some(prior));
    assert_eq!(next.prior("http://WWW.example:80", "fra", at(60)), Some(prior));
    assert_eq!(next.prior(ORIGIN, "nyc", at(60)), None);
    assert_eq!(next.prior("http://other.example:80", "fra", at(60)), None);

    let text = fs::read_to_string(&file).unwrap();
    let private = ["me:", "secret", "private", "token"];
    assert!(private.iter().all(|word| !text.contains(word)), "{text}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_new_sample_counts_half_unless_the_old_one_is_too_old() {
    let (_directory, file) = file();
    let mut history = History::open(&file);
    history.learn(ORIGIN, &[seen("fra", 8.0)], at(0));
    history.learn(ORIGIN, &[seen("fra", 16.0)], at(HOUR));
    assert_eq!(rate(&history, "fra", at(HOUR)), mbps(12.0));
    assert_eq!(rate(&history, "fra", at(HOUR + DAY)), mbps(12.0));
    assert_eq!(rate(&history, "fra", at(HOUR + DAY + 1)), None);
    history.learn(ORIGIN, &[seen("fra", 2.0)], at(HOUR + DAY + 1));
    assert_eq!(rate(&history, "fra", at(HOUR + DAY + 1)), mbps(2.0));
}

#[test]
fn a_lower_bound_raises_an_older_exact_value_and_never_lowers_it() {
    let (_directory, file) = file();
    let mut history = History::open(&file);
    history.learn(ORIGIN, &[at_least("fra", 1.0)], at(0));
    assert_eq!(rate(&history, "fra", at(1)), mbps(1.0));
    history.learn(ORIGIN, &[seen("fra", 8.0)], at(2));
    history.learn(ORIGIN, &[at_least("fra", 3.0)], at(3));
    assert_eq!(rate(&history, "fra", at(3)), mbps(8.0));
    history.learn(ORIGIN, &[at_least("fra", 20.0)], at(4));
    assert_eq!(rate(&history, "fra", at(4)), mbps(20.0));
    history.learn(ORIGIN, &[seen("fra", 4.0)], at(5));
    assert_eq!(rate(&history, "fra", at(5)), mbps(6.0), "the younger exact value counts");
}

#[test]
fn a_clock_that_was_ahead_or_behind_by_a_day_does_no_harm() {
    let (_directory, file) = file();
    let mut history = History::open(&file);
    history.learn(ORIGIN, &[seen("fra", 8.0)], at(DAY));
    history.quarantine("nyc", ORIGIN, "altered bytes", at(DAY));
    history.save().unwrap();
    // The clock is corrected: what was learned is in the future, and used.
    let mut history = History::open(&file);
    assert_eq!(rate(&history, "fra", at(0)), mbps(8.0));
    assert!(history.is_quarantined("nyc", Some(ORIGIN), at(0)));
    // New samples are not ignored in favour of those dated tomorrow.
    history.learn(ORIGIN, &[seen("fra", 2.0)], at(0));
    assert_eq!(rate(&history, "fra", at(0)), mbps(5.0));
    history.save().unwrap();
    let history = History::open(&file);
    assert_eq!(rate(&history, "fra", at(DAY - 1)), mbps(5.0));
    assert_eq!(rate(&history, "fra", at(DAY + 1)), None, "it ages from when it was put right");
    assert!(!history.is_quarantined("nyc", Some(ORIGIN), at(7 * DAY)));
}

#[test]
fn quarantine_ends_by_age_by_lifting_and_by_clearing() {
    let (_directory, file) = file();
    let mut history = History::open(&file);
    history.quarantine("fra", ORIGIN, "bytes 0-99 differ\nfrom the direct path's", at(0));
    history.quarantine("nyc", ORIGIN, "another", at(DAY));
    history.save().unwrap();
    let mut history = History::open(&file);
    assert_eq!(history.quarantined(at(1))[0].why, "bytes 0-99 differfrom the direct path's");
    assert!(history.is_quarantined("fra", Some(ORIGIN), at(7 * DAY - 1)));
    assert!(!history.is_quarantined("fra", Some(ORIGIN), at(7 * DAY)));
    assert!(!history.is_quarantined("sfo", Some(ORIGIN), at(0)));
    assert!(!history.is_quarantined("fra", Some("http://other.test:80"), at(0)));
    history.lift("fra", at(DAY));
    assert!(
        !history.is_quarantined("fra", Some(ORIGIN), at(DAY))
            && history.is_quarantined("nyc", Some(ORIGIN), at(DAY))
    );
    history.learn(ORIGIN, &[seen("sfo", 1.0)], at(DAY));
    history.clear(at(DAY));
    history.save().unwrap();
    let history = History::open(&file);
    assert!(history.quarantined(at(DAY)).is_empty() && history.entries(at(DAY)).is_empty());
}

#[test]
fn entries_show_what_is_known_and_whether_it_is_used() {
    let (_directory, file) = file();
    let mut history = History::open(&file);
    history.learn(ORIGIN, &[seen("direct", 8.0)], at(0));
    history.learn(ORIGIN, &[at_least("fra", 16.0)], at(2 * DAY));
    let shown = |e: &HistoryEntry| (e.path.clone(), e.rate, e.bound, e.age.as_secs(), e.is_valid);
    let entries: Vec<_> = history.entries(at(2 * DAY)).iter().map(shown).collect();
    let direct = ("direct".to_owned(), Rate::from_mbps(8.0), Bound::Exact, 2 * DAY, false);
    let fra = ("fra".to_owned(), Rate::from_mbps(16.0), Bound::AtLeast, 0, true);
    assert_eq!(entries, [direct, fra]);
    history.learn(ORIGIN, &[], at(31 * DAY));
    assert_eq!(history.entries(at(31 * DAY)).len(), 1, "after a month it is forgotten");
}

#[test]
fn concurrent_writers_lose_nothing_and_count_nothing_twice() {
    let (_directory, file) = file();
    let mut base = History::open(&file);
    base.learn(ORIGIN, &[seen("shared", 8.0)], at(0));
    base.save().unwrap();
    let writers: Vec<_> = (0..8).map(|i| (i, History::open(&file))).collect();
    thread::scope(|scope| {
        for (i, mut history) in writers {
            scope.spawn(move || {
                history.learn(ORIGIN, &[seen(&format!("own{i}"), f64::from(i + 1))], at(1));
                history.learn(ORIGIN, &[seen("shared", 8.0)], at(1));
                // On a busy machine another process may hold the lock for longer than the wait.
                while history.save().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock) {}
            });
        }
    });
    let after = History::open(&file);
    for i in 0..8 {
        assert_eq!(rate(&after, &format!("own{i}"), at(2)), mbps(f64::from(i + 1)));
    }
    assert_eq!(rate(&after, "shared", at(2)), mbps(8.0));

    let (mut one, mut two) = (History::open(&file), History::open(&file));
    one.learn(ORIGIN, &[seen("shared", 16.0)], at(3));
    two.learn(ORIGIN, &[seen("shared", 4.0)], at(3));
    one.save().unwrap();
    two.save().unwrap();
    two.save().unwrap();
    // ((8 + 16) / 2 + 4) / 2
    assert_eq!(rate(&History::open(&file), "shared", at(4)), mbps(8.0));
    assert_eq!(rate(&two, "shared", at(4)), mbps(8.0), "it knows the other's by now");
}

#[test]
fn a_corrupt_file_is_set_aside_once_and_reported() {
    for bytes in [&b"{\"format\": 1, \"writ"[..], b"", b"\xff\xfe", b"[]", b"{\"format\":1}"] {
        let (_directory, file) = file();
        fs::create_dir(file.parent().unwrap()).unwrap();
        fs::write(&file, bytes).unwrap();
        let mut history = History::open(&file);
        assert!(history.problem().unwrap().contains("was corrupt"), "{:?}", history.problem());
        let aside = file.with_file_name("history.json.damaged");
        assert_eq!(fs::read(aside).unwrap(), bytes);
        assert_eq!(History::open(&file).problem(), None);
        history.learn(ORIGIN, &[seen("fra", 8.0)], at(0));
        history.save().unwrap();
        assert_eq!(rate(&History::open(&file), "fra", at(1)), mbps(8.0));
    }
}

#[test]
fn a_file_that_is_corrupted_meanwhile_is_replaced_by_what_is_known() {
    let (_directory, file) = file();
    let mut history = History::open(&file);
    history.learn(ORIGIN, &[seen("fra", 8.0)], at(0));
    history.save().unwrap();
    fs::write(&file, "spoilt").unwrap();
    history.learn(ORIGIN, &[seen("nyc", 4.0)], at(1));
    history.save().unwrap();
    let after = History::open(&file);
    assert_eq!((rate(&after, "fra", at(1)), rate(&after, "nyc", at(1))), (mbps(8.0), mbps(4.0)));
    assert_eq!(fs::read(file.with_file_name("history.json.damaged")).unwrap(), b"spoilt");
}

#[test]
fn a_newer_programs_file_is_not_changed() {
    let (_directory, file) = file();
    fs::create_dir(file.parent().unwrap()).unwrap();
    let theirs = r#"{"format": 2, "names": "elsewhere"}"#;
    fs::write(&file, theirs).unwrap();
    let mut history = History::open(&file);
    assert!(history.problem().unwrap().contains("newer thalweg (format 2)"));
    history.learn(ORIGIN, &[seen("fra", 8.0)], at(0));
    history.save().unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), theirs);
}

/// As on a full disk, the new file cannot be written next to the old one.
#[test]
fn a_failed_write_is_repeated_later_and_the_old_file_stays() {
    let (_directory, file) = file();
    let mut history = History::open(&file);
    history.learn(ORIGIN, &[seen("fra", 8.0)], at(0));
    history.save().unwrap();
    let before = fs::read(&file).unwrap();
    // A non-empty directory of that name can be neither replaced nor removed.
    let beside = file.with_file_name("history.json.new");
    fs::create_dir_all(beside.join("x")).unwrap();
    history.learn(ORIGIN, &[seen("nyc", 4.0)], at(1));
    assert!(history.save().is_err());
    assert_eq!(fs::read(&file).unwrap(), before);
    assert_eq!(rate(&history, "nyc", at(1)), mbps(4.0), "this process knows it nevertheless");
    fs::remove_dir_all(&beside).unwrap();
    history.save().unwrap();
    assert_eq!(rate(&History::open(&file), "nyc", at(1)), mbps(4.0));
}

#[test]
fn a_lock_that_is_held_for_long_is_given_up() {
    let (_directory, file) = file();
    let mut history = History::open(&file);
    history.learn(ORIGIN, &[seen("fra", 8.0)], at(0));
    let held = store::lock(&file).unwrap();
    assert_eq!(history.save().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(held);
    history.save().unwrap();
    assert_eq!(rate(&History::open(&file), "fra", at(1)), mbps(8.0));
}

#[test]
fn beyond_the_limit_the_oldest_estimates_are_dropped() {
    let (_directory, file) = file();
    let mut history = History::open(&file);
    let paths: Vec<_> = (0..100).map(|i| seen(&format!("r{i}"), 8.0)).collect();
    for i in 0..11 {
        history.learn(&format!("http://h{i}.example:80"), &paths, at(i));
    }
    history.save().unwrap();
    let history = History::open(&file);
    // Each path has a rate and a set-up time.
    assert_eq!(history.entries(at(11)).len(), state::MAX_ESTIMATES / 2);
    assert_eq!(history.prior("http://h0.example:80", "r0", at(11)), None);
    assert!(history.prior("http://h1.example:80", "r0", at(11)).is_some());
}

#[test]
fn only_the_origin_of_a_url_is_kept() {
    let origin = |url: &str| state::origin_of(url);
    let www = Some("https://www.example:443".to_owned());
    assert_eq!(origin("https://www.example:443"), www);
    assert_eq!(origin("HTTPS://a:b@www.Example:443/x?y#z"), www);
    assert_eq!(origin("https://[2001:DB8::1]:80/"), Some("https://[2001:db8::1]:80".to_owned()));
    assert!(["", "www.example", "http://", "http:///x"].iter().all(|url| origin(url).is_none()));
}

proptest! {
    // Each case syncs files.
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// For any order of samples and jumps of the clock, the expectation lies between the slowest and the fastest
    /// sample, and is the same for the next process.
    #[test]
    fn a_prior_lies_within_the_observed_rates(
        samples in prop::collection::vec((1u32..1000, any::<bool>(), 0u64..3 * DAY), 1..20)
    ) {
        let (_directory, file) = file();
        let mut history = History::open(&file);
        for (value, exact, when) in &samples {
            let one = if *exact { seen("p", f64::from(*value)) } else { at_least("p", f64::from(*value)) };
            history.learn(ORIGIN, &[one], at(*when));
        }
        history.save().unwrap();
        let now = at(samples[samples.len() - 1].2);
        let got = rate(&history, "p", now).unwrap();
        let low = samples.iter().map(|s| s.0).min().map(|v| Rate::from_mbps(f64::from(v)));
        let high = samples.iter().map(|s| s.0).max().map(|v| Rate::from_mbps(f64::from(v)));
        prop_assert!(Some(got) >= low && Some(got) <= high, "{low:?} {got:?} {high:?}");
        prop_assert_eq!(rate(&History::open(&file), "p", now), Some(got));
    }

    /// No bytes cause a panic or are accepted.
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let read = record::read(&bytes);
        prop_assert!(matches!(read, record::DecodedHistory::Damaged(_) | record::DecodedHistory::Newer(_)));
    }
}
