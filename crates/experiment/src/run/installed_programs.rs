//! Finds installed programs and their versions.

use std::{
    env,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Directories of servers that are not in an ordinary user's PATH.
const SERVER_DIRS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Finds the executable file of `program`; a name with a slash is a path.
pub fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|p| executable(p));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(SERVER_DIRS.iter().map(PathBuf::from));
    directories.map(|d| d.join(program)).find(|p| executable(p))
}

fn executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// The missing ones of `programs` as a message; `None` if all are installed.
pub fn missing(programs: &[String]) -> Option<String> {
    let lost: Vec<&str> =
        programs.iter().map(String::as_str).filter(|p| find(p).is_none()).collect();
    match lost.as_slice() {
        [] => None,
        [one] => Some(format!("{one} is not installed")),
        many => Some(format!("{} are not installed", many.join(", "))),
    }
}

/// The first non-empty line that the command prints on standard output, else on standard error.
pub fn version(argv: &[String]) -> Option<String> {
    let (program, args) = argv.split_first()?;
    let mut command = Command::new(find(program)?);
    let output = command.args(args).stdin(Stdio::null()).output().ok()?;
    let both = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&both);
    text.lines().map(str::trim).find(|l| !l.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_or_named_as_missing() {
        assert!(find("sh").is_some() && find("/bin/sh").is_some());
        assert!(find("/etc/passwd").is_none(), "not executable");
        let wanted = ["sh", "no-such-x", "no-such-y"].map(String::from);
        assert_eq!(missing(&wanted[..1]), None);
        assert_eq!(missing(&wanted[..2]).unwrap(), "no-such-x is not installed");
        assert!(missing(&wanted).unwrap().contains("no-such-x, no-such-y"));
        assert_eq!(version(&["echo".into(), " v1 ".into()]).unwrap(), "v1");
    }
}
