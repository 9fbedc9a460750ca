//! Lists of URLs: a file, or standard input.

use super::{Item, Wish, below};
use crate::commands::get::{
    args::{Naming, Output},
    exit::Code,
};
use anyhow::Context as _;
use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    sync::Arc,
};

/// The longest list: half a million URLs, and no endless pipe fills the memory.
const MAX_BYTES: u64 = 64 << 20;

/// The items of a list; `-` is standard input. It is read to its end first.
///
/// # Errors
/// If it cannot be read, is too long, or is not UTF-8.
pub fn read(file: &Path, naming: &Naming) -> anyhow::Result<Vec<Item>> {
    let name = match file.as_os_str() == "-" {
        true => "standard input".to_owned(),
        false => file.display().to_string(),
    };
    let text = contents(file).with_context(|| format!("cannot read URLs from {name}"))?;
    let name: Arc<str> = name.into();
    let item = |(i, line)| item(line, i + 1, &name, naming);
    let items: Vec<Item> = text.lines().enumerate().filter_map(item).collect();
    anyhow::ensure!(!items.is_empty(), "no URLs in {name}");
    Ok(items)
}

fn contents(file: &Path) -> io::Result<String> {
    let source: Box<dyn Read> = match file.as_os_str() == "-" {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(file)?),
    };
    let mut text = String::new();
    source.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("it is longer than {} MB", MAX_BYTES >> 20)));
    }
    Ok(text)
}

/// `URL`, `URL<TAB>NAME`, a comment, or nothing.
fn item(line: &str, number: usize, list: &Arc<str>, naming: &Naming) -> Option<Item> {
    let line = line.trim_end_matches('\r');
    let (url, name) = match line.split_once('\t') {
        Some((url, name)) => (url.trim(), Some(name.trim()).filter(|name| !name.is_empty())),
        None => (line.trim(), None),
    };
    if url.is_empty() || url.starts_with('#') {
        return None;
    }
    let text = url.to_owned();
    let output = match (naming.of(None), name) {
        (Output::Stdout, _) => Output::Stdout,
        (other, None) => other,
        (_, Some(name)) => match below(naming.directory(), name) {
            Ok(output) => output,
            Err(why) => {
                let why = format!("line {number} of {list}: {why}");
                return Some(Item::mistake(text, why, Code::Usage));
            }
        },
    };
    Some(Item { text, wish: Wish::Url(output), line: Some((Arc::clone(list), number)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::get::args::Args;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn a_line_is_a_url_and_perhaps_a_name() {
        let naming = Cli::parse_from(["get", "-P", "d", "-"]).args.naming;
        let output = |line: &str| match item(line, 1, &"list".into(), &naming)?.wish {
            Wish::Url(output) => Some(output),
            _ => panic!("{line} is a mistake"),
        };
        assert_eq!(output(" http://a/b \r"), Some(Output::Url("d".into())));
        assert_eq!(output("http://a/b\tc d"), Some(Output::Below("d".into(), "c d".into())));
        assert_eq!(
            output("http://a/b\t../../x/.y"),
            Some(Output::Below("d".into(), "x/_y".into()))
        );
        assert_eq!(output("http://a/b\t"), Some(Output::Url("d".into())));
        assert_eq!((output(""), output("# x"), output(" \t ")), (None, None, None));
        let bad = item("http://a/b\t..", 7, &"list".into(), &naming).unwrap().wish;
        assert!(matches!(bad, Wish::Mistake(why, Code::Usage) if why.contains("line 7 of list")));
    }
}
