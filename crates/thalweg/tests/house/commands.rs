//! Documents name commands and options that exist: the programs' own help is asked.

use super::tree;
use std::{collections::BTreeMap, path::Path, process::Command};

/// The programs whose commands are looked for.
const PROGRAMS: &[&str] = &["thalweg", "thalweg-bench"];

/// What follows is a program of the user's, with options of its own.
const FOREIGN: &[&[&str]] = &[&["thalweg-bench", "lab"], &["thalweg", "run"]];

/// Names that commands had before; they still work, but documents use the new ones.
const FORMER: &[(&str, &str)] = &[
    ("init", "mesh init"),
    ("token", "mesh token"),
    ("join", "mesh join"),
    ("revoke", "mesh revoke"),
    ("roster", "mesh members"),
    ("bond", "interfaces"),
];

/// One command as a document has it: the program and its words, and the long options behind them.
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
fn a_command_that_does_not_exist_would_be_seen() {
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
}

/// The commands in one line: in backquotes, or at the beginning of a line of a listing.
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
    let is_word = |w: &&str| !w.is_empty() && w.chars().all(|c| c.is_ascii_lowercase());
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

/// What `--help` says, by command.
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
        let Some(mut help) = self.of(first) else {
            return Some(format!("there is no `{}`", first.join(" ")));
        };
        if FOREIGN.iter().any(|foreign| *foreign == first) {
            return None;
        }
        // Else the second word is an argument.
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
            assert!(program.exists(), "{} is missing: cargo build --workspace", words[0]);
            let mut command = Command::new(program);
            let output = command.args(&words[1..]).arg("--help").output().expect("it starts");
            let text = String::from_utf8(output.stdout).expect("text");
            output.status.success().then_some(text)
        });
        asked.clone()
    }
}
