//! The command line of a job: which are permitted, and what they name.

use thiserror::Error;

/// The commands that can be jobs.
pub const VERBS: [&str; 6] = ["get", "gather", "send", "cast", "submit", "stream"];

/// The most arguments of a command line.
const MAX_ARGUMENTS: usize = 4096;

/// The longest command line, bytes: it fits a request of the API with its quotes.
const MAX_BYTES: usize = 48 * 1024;

/// Options whose argument is the target.
const TARGET_OPTIONS: [&str; 7] =
    ["-o", "--output", "-P", "--directory-prefix", "--into", "--to", "--output-dir"];

/// Why a command line cannot be a job.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CommandError {
    #[error("`{0}` cannot run as a job; get, gather, send, cast, submit and stream can")]
    Verb(String),
    #[error("a job has no {0}: name a file instead of `-`")]
    Pipe(&'static str),
    #[error("a job's command line has at most {MAX_ARGUMENTS} arguments and {MAX_BYTES} bytes")]
    TooLong,
    #[error("an argument contains a zero byte")]
    ZeroByte,
    #[error("a job has no terminal: leave `{0}` out")]
    Option(String),
}

/// Checks a command line before it is queued.
///
/// # Errors
/// [`CommandError`].
pub fn check(arguments: &[String]) -> Result<(), CommandError> {
    let verb = arguments.first().map(String::as_str).unwrap_or_default();
    if !VERBS.contains(&verb) {
        let shown: String = verb.chars().take(40).collect();
        return Err(CommandError::Verb(shown));
    }
    let bytes: usize = arguments.iter().map(|a| a.len() + 1).sum();
    if arguments.len() > MAX_ARGUMENTS || bytes > MAX_BYTES {
        return Err(CommandError::TooLong);
    }
    if arguments.iter().any(|a| a.contains('\0')) {
        return Err(CommandError::ZeroByte);
    }
    let detaches = |a: &&String| *a == "--detach" || a.starts_with("--detach=");
    if let Some(option) = arguments.iter().take_while(|a| *a != "--").find(detaches) {
        return Err(CommandError::Option(option.clone()));
    }
    no_pipe(arguments)
}

fn no_pipe(arguments: &[String]) -> Result<(), CommandError> {
    let follows = |i: usize, names: &[&str]| {
        i.checked_sub(1).is_some_and(|before| names.contains(&arguments[before].as_str()))
    };
    for (i, argument) in arguments.iter().enumerate().skip(1) {
        match argument.as_str() {
            "-" if follows(i, &["-C", "--continue-at"]) => {}
            "-" if follows(i, &["-o", "--output"]) => {
                return Err(CommandError::Pipe("standard output"));
            }
            "-" => return Err(CommandError::Pipe("standard input")),
            "-o-" | "--output=-" => return Err(CommandError::Pipe("standard output")),
            _ => {}
        }
    }
    Ok(())
}

/// What a command line names as its ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    pub from: Vec<String>,
    pub to: Option<String>,
}

/// The ends that a command line names, as far as they can be seen without its grammar: positional arguments that are
/// URLs, `MEMBER:PATH` or paths, and the argument of an option for the target. Only for display.
pub fn ends(arguments: &[String]) -> Ends {
    let mut ends = Ends::default();
    let mut rest = arguments.iter().skip(1);
    let mut is_first = true;
    while let Some(argument) = rest.next() {
        let may_be_a_name = std::mem::take(&mut is_first);
        if TARGET_OPTIONS.contains(&argument.as_str()) {
            ends.to = rest.next().cloned().or(ends.to);
        } else if let Some((option, value)) = argument.split_once('=')
            && TARGET_OPTIONS.contains(&option)
        {
            ends.to = Some(value.to_owned());
        } else if !argument.starts_with('-')
            && (may_be_a_name || argument.contains(['/', ':', '.']))
        {
            ends.from.push(without_login(argument));
        }
    }
    // `send FILES MEMBER:PATH` names the target last.
    if arguments.first().is_some_and(|verb| verb == "send" || verb == "submit")
        && ends.from.len() > 1
    {
        ends.to = ends.from.pop();
    }
    ends
}

/// A URL without its login, which is nobody else's business.
fn without_login(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match authority.rsplit_once('@') {
        Some((login, _)) => format!("{scheme}://{}", &rest[login.len() + 1..]),
        None => url.to_owned(),
    }
}

/// The command line for a shell, without secrets: others may look at a log or a page.
pub fn for_shell(arguments: &[String]) -> String {
    let shown = without_secrets(arguments);
    let quoted = shown.iter().map(|argument| quoted(argument));
    std::iter::once("thalweg".to_owned()).chain(quoted).collect::<Vec<_>>().join(" ")
}

/// Options whose argument is a login or may hold one.
const SECRET_OPTIONS: [&str; 6] =
    ["-u", "--user", "-H", "--header", "--proxy-user", "--oauth2-bearer"];

/// The arguments with logins in URLs and the values of options for logins and headers replaced by `…`.
pub fn without_secrets(arguments: &[String]) -> Vec<String> {
    let mut is_secret = false;
    let hide = |argument: &String| {
        if std::mem::replace(&mut is_secret, SECRET_OPTIONS.contains(&argument.as_str())) {
            return "…".to_owned();
        }
        match argument.split_once('=') {
            Some((option, _)) if SECRET_OPTIONS.contains(&option) => format!("{option}=…"),
            Some((option, value)) if option.starts_with('-') => {
                format!("{option}={}", without_login(value))
            }
            _ => without_login(argument),
        }
    };
    arguments.iter().map(hide).collect()
}

/// An argument, quoted for a shell if it has to be.
pub fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    match !argument.is_empty() && argument.chars().all(plain) {
        true => argument.to_owned(),
        false => format!("'{}'", argument.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn only_transfers_can_be_jobs() {
        for verb in VERBS {
            assert_eq!(check(&words(&format!("{verb} x"))), Ok(()));
        }
        for line in ["node", "mesh revoke a", "", "--version"] {
            assert!(matches!(check(&words(line)), Err(CommandError::Verb(_))), "{line}");
        }
    }

    #[test]
    fn a_job_has_no_standard_input_or_output() {
        for line in ["get -i - -P d", "get URL -o -", "get URL -o-", "get URL --output=-", "cast -"]
        {
            assert!(matches!(check(&words(line)), Err(CommandError::Pipe(_))), "{line}");
        }
        assert_eq!(check(&words("get URL -C -")), Ok(()));
        assert!(check(&words("get URL --detach")).is_err());
        assert!(check(&words("get a\0b")).is_err());
        assert_eq!(check(&vec!["get".to_owned(); 5000]), Err(CommandError::TooLong));
    }

    #[test]
    fn the_ends_are_found() {
        let from = |line: &str| ends(&words(line));
        let e = from("get https://u:p@example.org/x@y -P /srv");
        assert_eq!(
            (e.from, e.to),
            (vec!["https://example.org/x@y".to_owned()], Some("/srv".to_owned()))
        );
        let e = from("gather fra:/data nyc:/data --into d");
        assert_eq!((e.from.len(), e.to.as_deref()), (2, Some("d")));
        assert_eq!(from("cast data --to-all").from, ["data"]);
        let e = from("send ./a.bin fra:/inbox");
        assert_eq!((e.from, e.to), (vec!["./a.bin".to_owned()], Some("fra:/inbox".to_owned())));
    }

    #[test]
    fn logins_and_headers_are_not_shown() {
        let line = "get https://u:p@a/b -u me:secret --header=X --mirror=ftp://u:p@c/d -H Cookie";
        let wanted = "get https://a/b -u … --header=… --mirror=ftp://c/d -H …";
        assert_eq!(without_secrets(&words(line)), words(wanted));
    }

    #[test]
    fn a_shell_reads_the_command_line_back() {
        assert_eq!(
            for_shell(&["get".to_owned(), "a b'c".to_owned(), String::new()]),
            r"thalweg get 'a b'\''c' ''"
        );
    }
}
