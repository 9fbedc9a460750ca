//! Reads users and passwords by host from a `.netrc` file.
//!
//! The format is that of ftp(1) and curl: `machine HOST login NAME password WORD`, `default`, `account` (read and
//! ignored), `macdef` (skipped up to the next empty line), words in double quotes; `#` at the start of a word begins a
//! comment.

use std::{
    fmt, fs,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

/// The most bytes of a file that are read: a hundred thousand entries.
const MAX_BYTES: u64 = 8 << 20;

/// The entries of one file, in order.
#[derive(Default)]
pub struct Netrc {
    entries: Vec<Entry>,
}

/// A user and a password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    /// The password; may be empty.
    pub password: String,
}

struct Entry {
    /// `None`: every host without an entry of its own.
    host: Option<String>,
    login: Login,
}

/// Does not print the password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({})", self.user)
    }
}

impl Netrc {
    /// Reads a file.
    ///
    /// # Errors
    /// If the file cannot be read. Unknown words in it are ignored.
    pub fn read(file: &Path) -> io::Result<Self> {
        let mut bytes = Vec::new();
        fs::File::open(file)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
        // A comment in another encoding must not make the entries unreadable.
        Ok(Self::parse(&String::from_utf8_lossy(&bytes)))
    }

    /// Whether other users than the owner have access to the file.
    pub fn is_exposed(file: &Path) -> bool {
        fs::metadata(file).is_ok_and(|m| m.mode() & 0o077 != 0)
    }

    fn parse(text: &str) -> Self {
        let mut netrc = Self::default();
        let mut words = Words { rest: text };
        while let Some(word) = words.next() {
            match word.to_ascii_lowercase().as_str() {
                "machine" => netrc.begin(words.next()),
                "default" => netrc.begin(None),
                "macdef" => words.skip_macro(),
                "account" => _ = words.next(),
                "login" => netrc.set(words.next(), |login| &mut login.user),
                "password" => netrc.set(words.next(), |login| &mut login.password),
                _ => {}
            }
        }
        netrc
    }

    fn begin(&mut self, host: Option<String>) {
        self.entries.push(Entry { host, login: Login::default() });
    }

    fn set(&mut self, word: Option<String>, field: impl Fn(&mut Login) -> &mut String) {
        if let (Some(entry), Some(word)) = (self.entries.last_mut(), word) {
            *field(&mut entry.login) = word;
        }
    }

    /// The logins in their order, with their hosts; `None` stands for every host without a login of its own.
    pub fn logins(&self) -> impl Iterator<Item = (Option<&str>, &Login)> {
        let complete = self.entries.iter().filter(|entry| !entry.login.user.is_empty());
        complete.map(|entry| (entry.host.as_deref(), &entry.login))
    }
}

/// The words of the file.
struct Words<'a> {
    rest: &'a str,
}

impl Words<'_> {
    /// Skips to the next empty line.
    fn skip_macro(&mut self) {
        let end = self.rest.find("\n\n").unwrap_or(self.rest.len());
        self.rest = &self.rest[end..];
    }

    fn quoted(&mut self) -> String {
        let mut word = String::new();
        let mut chars = self.rest[1..].char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = &self.rest[1 + at + 1..];
                    return word;
                }
                '\\' => word.extend(chars.next().map(|(_, c)| c)),
                _ => word.push(c),
            }
        }
        self.rest = "";
        word
    }
}

impl Iterator for Words<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        loop {
            self.rest = self.rest.trim_start();
            match self.rest.chars().next()? {
                '#' => {
                    let end = self.rest.find('\n').unwrap_or(self.rest.len());
                    self.rest = &self.rest[end..];
                }
                '"' => return Some(self.quoted()),
                _ => break,
            }
        }
        let end = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(word.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# of all sorts
machine a.example login ann password secret
macdef init
cd /pub
machine fake login x password y

machine b.example
    account none
    login \"bob b\"
    password \"with \\\"quote\\\" # and hash\"
default login anonymous password me@example
machine A.example login second password never
";

    fn logins(text: &str) -> Vec<(Option<String>, String, String)> {
        let netrc = Netrc::parse(text);
        let owned = |(host, login): (Option<&str>, &Login)| {
            (host.map(str::to_owned), login.user.clone(), login.password.clone())
        };
        netrc.logins().map(owned).collect()
    }

    #[test]
    fn logins_keep_their_order_and_macros_are_skipped() {
        let wanted = [
            (Some("a.example"), "ann", "secret"),
            (Some("b.example"), "bob b", "with \"quote\" # and hash"),
            (None, "anonymous", "me@example"),
            (Some("A.example"), "second", "never"),
        ];
        let wanted = wanted.map(|(h, u, p)| (h.map(str::to_owned), u.to_owned(), p.to_owned()));
        assert_eq!(logins(FILE), wanted);
    }

    #[test]
    fn entries_without_a_login_are_ignored_and_odd_files_cause_no_panic() {
        assert_eq!(logins("machine a password y"), []);
        for text in ["", "\"", "\"\\", "machine", "login x", "macdef", "default", "é\u{a0}ü \"é"]
        {
            assert_eq!(logins(text), [], "{text}");
        }
    }

    #[test]
    fn passwords_are_not_printed() {
        let netrc = Netrc::parse(FILE);
        assert!(!format!("{:?}", netrc.logins().next()).contains("secret"));
    }
}
