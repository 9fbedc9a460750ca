//! The pages of the commands as Markdown, made from the definitions of the options, as the manual pages are.
//!
//! There is one page a command, which contains its subcommands, and an index. Pure: the texts are returned.

use clap::{Arg, Command};
use std::fmt::Write as _;

/// A page: the name of its file and its text.
pub struct Page {
    pub file: String,
    pub text: String,
}

/// Makes the pages of all visible commands, and the index, which lists them in these groups.
pub fn command_pages(mut program: Command, groups: &[(&str, &[&str])]) -> Vec<Page> {
    program.build();
    let mut index =
        "# Commands\n\nMade by `thalweg man --markdown` from the definitions of the options, \
                     as the manual pages are.\n"
            .to_owned();
    let mut pages = Vec::new();
    for (title, names) in groups {
        _ = write!(index, "\n## {title}\n\n");
        for command in names.iter().filter_map(|name| program.find_subcommand(name)) {
            let (name, file) = (command.get_name(), format!("{}.md", command.get_name()));
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            _ = writeln!(index, "- [`thalweg {name}`]({file}): {}", escaped(&about));
            let mut text = String::new();
            write_command(&mut text, command, &format!("thalweg {name}"), 1);
            pages.push(Page { file, text });
        }
    }
    pages.push(Page { file: "README.md".to_owned(), text: index });
    pages
}

/// Writes a command and its subcommands, under a heading of this level.
fn write_command(text: &mut String, command: &Command, name: &str, level: usize) {
    _ = write!(text, "{} {name}\n\n", "#".repeat(level));
    let about = command.get_long_about().or_else(|| command.get_about());
    if let Some(about) = about {
        _ = write!(text, "{}\n\n", escaped(&about.to_string()));
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").lines().map(str::trim_start);
    _ = write!(text, "```text\n{}\n```\n", usage.collect::<Vec<_>>().join("\n"));
    write_arguments(text, command);
    if let Some(after) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        _ = write!(text, "\n```text\n{}\n```\n", after.to_string().trim_end());
    }
    for sub in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        text.push('\n');
        write_command(text, sub, &format!("{name} {}", sub.get_name()), level + 1);
    }
}

/// Writes the arguments under the headings that the help has.
fn write_arguments(text: &mut String, command: &Command) {
    let is_shown = |arg: &&Arg| !arg.is_hide_set() && arg.get_id() != "help";
    let heading = |arg: &Arg| match arg.get_help_heading() {
        Some(heading) => heading.to_owned(),
        None if arg.is_positional() => "Arguments".to_owned(),
        None => "Options".to_owned(),
    };
    let mut headings: Vec<String> = Vec::new();
    for arg in command.get_arguments().filter(is_shown) {
        if !headings.contains(&heading(arg)) {
            headings.push(heading(arg));
        }
    }
    // Clap shows arguments first, wherever they are defined.
    headings.sort_by_key(|heading| heading != "Arguments");
    for title in headings {
        _ = write!(text, "\n**{title}**\n\n");
        for arg in command.get_arguments().filter(is_shown).filter(|arg| heading(arg) == title) {
            _ = writeln!(text, "- {}", described(arg));
        }
    }
}

/// One argument: its names, what it does, its default and its values.
fn described(arg: &Arg) -> String {
    let mut line = String::new();
    if let Some(short) = arg.get_short() {
        _ = write!(line, "`-{short}`, ");
    }
    _ = write!(line, "`{arg}`");
    if let Some(help) = arg.get_long_help().or_else(|| arg.get_help()) {
        _ = write!(line, ": {}", escaped(&help.to_string()).replace('\n', "\n  "));
    }
    if !arg.get_action().takes_values() {
        return line;
    }
    let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy());
    let defaults: Vec<String> = defaults.map(|value| format!("`{value}`")).collect();
    if !defaults.is_empty() && !arg.is_hide_default_value_set() {
        _ = write!(line, " (default: {})", defaults.join(" "));
    }
    let values = arg.get_possible_values();
    let values: Vec<String> = values
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !values.is_empty() && !arg.is_hide_possible_values_set() {
        _ = write!(line, " (one of {})", values.join(", "));
    }
    line
}

/// The text with a backslash before what Markdown would read as markup; what is between backquotes stays.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    let mut is_code = false;
    for c in text.chars() {
        is_code ^= c == '`';
        if !is_code && "*_<[\\|".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Command {
        let get = Command::new("get").about("Fetch a <thing>").arg(Arg::new("URL").required(true));
        let get = get.arg(
            Arg::new("size")
                .short('s')
                .long("size")
                .value_name("BYTES")
                .default_value("7")
                .help("Its *size*"),
        );
        let mesh =
            Command::new("mesh").about("Found").subcommand(Command::new("join").about("Join"));
        Command::new("thalweg").subcommands([get, mesh, Command::new("old").hide(true)])
    }

    #[test]
    fn a_page_has_usage_arguments_defaults_and_subcommands() {
        let pages = command_pages(program(), &[("Move", &["get"]), ("Mesh", &["mesh"])]);
        let names: Vec<&str> = pages.iter().map(|page| &*page.file).collect();
        assert_eq!(names, ["get.md", "mesh.md", "README.md"]);
        assert_eq!(
            pages[0].text,
            "# thalweg get\n\nFetch a \\<thing>\n\n```text\nthalweg get [OPTIONS] <URL>\n```\n\n\
             **Arguments**\n\n- `<URL>`\n\n**Options**\n\n- `-s`, `--size <BYTES>`: Its \\*size\\* (default: `7`)\n"
        );
        assert!(pages[1].text.contains("\n## thalweg mesh join\n\nJoin\n"), "{}", pages[1].text);
        assert!(pages[2].text.contains("## Mesh\n\n- [`thalweg mesh`](mesh.md): Found\n"));
    }

    #[test]
    fn markup_is_escaped_outside_code() {
        assert_eq!(escaped("a_b `c_d` <e> [f]"), "a\\_b `c_d` \\<e> \\[f]");
    }
}
