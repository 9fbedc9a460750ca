//! The settings file.

use std::path::PathBuf;
use thalweg_wire::doctor::Finding;

/// The settings file and what is wrong in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingsFacts {
    /// The file; `None`: there is none, and all settings have their defaults.
    pub file: Option<PathBuf>,
    /// The problems, each in a line.
    pub problems: Vec<String>,
}

/// Whether the daemon can use the file.
pub fn check(facts: &SettingsFacts) -> Finding {
    let Some(file) = &facts.file else {
        return Finding::ok(
            "settings.default",
            "no settings file: all settings have their defaults",
        );
    };
    let file = file.display();
    match facts.problems.split_first() {
        None => Finding::ok("settings.valid", file.to_string()),
        Some((first, rest)) => {
            let more = match rest.len() {
                0 => String::new(),
                n => format!("; {n} more"),
            };
            Finding::error("settings.problem", format!("{file}: {first}{more}"))
                .means("`thalweg node` does not start with this file, and commands refuse it")
                .remedy(format!("thalweg config check --config {file}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_problem_is_shown_and_the_others_counted() {
        let file = Some("/etc/thalweg.toml".into());
        let problems = vec!["line 1: no unit".to_owned(), "line 2: unknown".to_owned()];
        let found = check(&SettingsFacts { file: file.clone(), problems });
        assert_eq!(found.seen, "/etc/thalweg.toml: line 1: no unit; 1 more");
        assert_eq!(check(&SettingsFacts { file, problems: Vec::new() }).id, "settings.valid");
        assert_eq!(check(&SettingsFacts::default()).id, "settings.default");
    }
}
