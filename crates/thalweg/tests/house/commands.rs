//! Commands and options named in documents exist; the programs' own help is asked.

use super::tree;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

/// The programs whose commands are checked.
const PROGRAMS: &[&str] = &["thalweg", "thalweg-bench"];

/// Commands followed by another program with options of its own.
const FOREIGN: &[&[&str]] = &[&["thalweg-bench", "lab"], &["thalweg", "run"]];

/// Commands of the harness. The product passes them on for one release, but documents name `thalweg-bench`.
const HARNESS: [&str; 5] = ["lab", "experiment", "sim", "load", "demo"];

/// Former names of commands; they still work, but documents use the new ones.
const FORMER: &[(&str, &str)] = &[
    ("init", "mesh init"),
    ("token", "mesh token"),
    ("join", "mesh join"),
    ("revoke", "mesh revoke"),
    ("roster", "mesh members"),
    ("bond", "interfaces"),
];

/// A command in a document: the program and its words, and the long options that follow.
#[derive(Debug, PartialEq)]
struct Named {
    words: Vec<String>,
    options: Vec<String>,
}

#[test]
fn documents_name_commands_that_exist() {
    let mut helps = Helps::default();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for source in tree::sources(&["docs", "README.md"]).iter().filter(|s| s.is(&["md"])) {
        for (number, line) in source.lines() {
            for named in named(line) {
                seen += 1;
                let fault = helps.fault(&named);
                wrong.extend(fault.map(|why| format!("{}:{number}: {why}", source.path)));
            }
        }
    }
    assert!(seen > 100, "only {seen} commands were found in the documents");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_missing_command_is_detected() {
    let mut helps = Helps::default();
    let mut fault = |line: &str| named(line).iter().find_map(|named| helps.fault(named));
    assert_eq!(fault("as `thalweg config example` and `thalweg get URL --via fra` do"), None);
    assert_eq!(fault("$ thalweg status --json | jq --raw-output .name"), None);
    assert_eq!(fault("the thalweg of a river"), None);
    assert!(fault("`thalweg config --example`").is_some());
    assert!(fault("    thalweg confg check").is_some());
    assert!(fault("`thalweg config exmple`").is_some());
    assert_eq!(fault("`thalweg-bench experiment run NAME --quick`"), None);
    assert!(fault("`thalweg-bench experiment walk`").is_some());
    assert!(fault("`thalweg experiment run NAME`").is_some());
    assert_eq!(fault("`thalweg mesh init --name fra`"), None);
    assert!(fault("`thalweg init --name fra`").is_some());
    assert_eq!(fault("`thalweg drop-box collect taxes --into DIR`"), None);
    assert!(fault("`thalweg drop-box colect taxes`").is_some());
    assert!(fault("`thalweg dropbox collect taxes`").is_some());
}

/// The commands in a line: in backquotes, or at the beginning of a line of a listing.
fn named(line: &str) -> Vec<Named> {
    let quoted = line.split('`').skip(1).step_by(2);
    let typed = line.trim_start().trim_start_matches("$ ");
    quoted.chain([typed]).filter_map(command).collect()
}

fn command(text: &str) -> Option<Named> {
    let (program, text) = text.split_once(' ')?;
    let program = PROGRAMS.iter().find(|name| **name == program)?;
    let ends = |c: char| "#|>;&`)".contains(c);
    let text = text.split(ends).next().unwrap_or_default();
    let is_letter = |c: char| c.is_ascii_lowercase() || c == '-';
    let is_word =
        |w: &&str| w.starts_with(|c: char| c.is_ascii_lowercase()) && w.chars().all(is_letter);
    let all: Vec<&str> = text.split_whitespace().collect();
    let words = all.iter().copied().take_while(is_word).take(2);
    let words: Vec<String> = [*program].into_iter().chain(words).map(str::to_owned).collect();
    let options = all.iter().take_while(|w| **w != "--").filter(|w| w.starts_with("--"));
    let option = |w: &&str| {
        let end = w.find(|c: char| c != '-' && !c.is_ascii_lowercase() && !c.is_ascii_digit());
        w[..end.unwrap_or(w.len())].to_owned()
    };
    let options: Vec<String> = options.map(option).collect();
    (words.len() > 1).then_some(Named { words, options })
}

/// The output of `--help`, by command.
#[derive(Default)]
struct Helps(BTreeMap<Vec<String>, Option<String>>);

impl Helps {
    fn fault(&mut self, named: &Named) -> Option<String> {
        let first = &named.words[..2];
        if let Some((former, now)) =
            FORMER.iter().find(|(former, _)| first[0] == "thalweg" && first[1] == *former)
        {
            return Some(format!("`thalweg {former}` is now `thalweg {now}`"));
        }
        if first[0] == "thalweg" && HARNESS.contains(&first[1].as_str()) {
            return Some(format!("`{0}` is `thalweg-bench {0}`", first[1]));
        }
        let Some(mut help) = self.of(first) else {
            return Some(format!("there is no `{}`", first.join(" ")));
        };
        if FOREIGN.iter().any(|foreign| *foreign == first) {
            return None;
        }
        // Otherwise the second word is an argument.
        if help.contains("Commands:") && named.words.len() > 2 {
            match self.of(&named.words) {
                Some(text) => help = text,
                None => return Some(format!("there is no `{}`", named.words.join(" "))),
            }
        }
        let has = |option: &String| {
            let ends = |rest: &str| !rest.starts_with(|c: char| c == '-' || c.is_alphanumeric());
            option == "--help"
                || help
                    .match_indices(option.as_str())
                    .any(|(at, found)| ends(&help[at + found.len()..]))
        };
        let missing = named.options.iter().find(|option| !has(option))?;
        Some(format!("`{}` has no {missing}", named.words.join(" ")))
    }

    fn of(&mut self, words: &[String]) -> Option<String> {
        let asked = self.0.entry(words.to_vec()).or_insert_with(|| {
            let program = Path::new(env!("CARGO_BIN_EXE_thalweg")).with_file_name(&words[0]);
            assert!(program.exists(), "{} is missing: cargo build --workspace --bins", words[0]);
            if let Some(newer) = newer_source(&program) {
                panic!(
                    "{} is older than {}: cargo build --workspace --bins",
                    program.display(),
                    newer.display()
                );
            }
            let mut command = Command::new(program);
            let output = command.args(&words[1..]).arg("--help").output().expect("it starts");
            let text = String::from_utf8(output.stdout).expect("text");
            output.status.success().then_some(text)
        });
        asked.clone()
    }
}

/// A source file that was changed or removed after this program was linked: the program's help would be out of date.
/// Cargo builds `thalweg` for this test, but not the programs of other crates.
fn newer_source(program: &Path) -> Option<PathBuf> {
    let changed = |file: &Path| fs::metadata(file).and_then(|m| m.modified());
    let built = changed(program).unwrap_or(SystemTime::UNIX_EPOCH);
    // In the format of make: `program: source source …`; blanks in names are escaped.
    let listed = fs::read_to_string(program.with_extension("d")).unwrap_or_default();
    let listed = listed.split_once(": ").map_or("", |(_, sources)| sources).replace("\\ ", "\0");
    let sources = listed.split_whitespace().map(|name| PathBuf::from(name.replace('\0', " ")));
    let mut sources = sources.filter(|source| source.extension().is_some_and(|e| e == "rs"));
    sources.find(|source| changed(source).map_or(true, |changed| changed > built))
}

#[test]
fn a_program_older_than_its_sources_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let (program, source) = (dir.path().join("program"), dir.path().join("a b.rs"));
    fs::write(&source, "fn main() {}").unwrap();
    fs::write(&program, "").unwrap();
    let escaped = source.display().to_string().replace(' ', "\\ ");
    fs::write(dir.path().join("program.d"), format!("{}: {escaped}\n", program.display())).unwrap();
    let at = |file: &Path, seconds: u64| {
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        fs::File::options().write(true).open(file).unwrap().set_modified(time).unwrap();
    };
    at(&source, 10);
    at(&program, 20);
    assert_eq!(newer_source(&program), None);
    at(&source, 30);
    assert_eq!(newer_source(&program), Some(source.clone()));
    fs::remove_file(&source).unwrap();
    assert_eq!(newer_source(&program), Some(source));
}
