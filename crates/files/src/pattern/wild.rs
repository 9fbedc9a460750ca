//! Wildcard patterns as rsync matches them: `*` and `?` within a name, `**` across `/`, sets in brackets.
//!
//! Pure. The time is at most proportional to the length of the pattern times that of the text: all positions in the
//! pattern that may match next are followed in parallel, without backtracking. (rsync backtracks; the same texts
//! match.)

/// A pattern of bytes.
#[derive(Clone, Debug)]
pub(super) struct Wild(Vec<Token>);

#[derive(Clone, Debug)]
enum Token {
    Byte(u8),
    /// `?`: any byte but `/`.
    Any,
    /// `*`: any number of bytes other than `/`.
    Star,
    /// `**` or more stars: any number of bytes.
    Stars,
    /// `[…]`: a byte of the set; never `/`.
    Set(Box<Set>),
    /// Matches no byte: a set that is not closed or names an unknown class, or a backslash at the end.
    Never,
}

/// Where a match may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Start,
    /// At the start of the text, or behind any `/`.
    AnyPart,
}

/// A set of bytes, one bit for each.
#[derive(Clone, Debug, Default)]
struct Set([u64; 4]);

impl Set {
    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] & (1 << (byte & 63)) != 0
    }

    fn invert(&mut self) {
        self.0.iter_mut().for_each(|word| *word = !*word);
    }

    /// Adds all bytes of a POSIX class of the C locale. Returns false if there is no class with this name.
    fn add_class(&mut self, name: &[u8]) -> bool {
        let is_in: fn(&u8) -> bool = match name {
            b"alnum" => u8::is_ascii_alphanumeric,
            b"alpha" => u8::is_ascii_alphabetic,
            b"blank" => |byte| matches!(byte, b' ' | b'\t'),
            b"cntrl" => u8::is_ascii_control,
            b"digit" => u8::is_ascii_digit,
            b"graph" => u8::is_ascii_graphic,
            b"lower" => u8::is_ascii_lowercase,
            b"print" => |byte| byte.is_ascii_graphic() || *byte == b' ',
            b"punct" => u8::is_ascii_punctuation,
            b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
            b"upper" => u8::is_ascii_uppercase,
            b"xdigit" => u8::is_ascii_hexdigit,
            _ => return false,
        };
        (0..=127).filter(is_in).for_each(|byte| self.add(byte));
        true
    }
}

impl Wild {
    /// Parses a pattern; every byte string is valid.
    pub fn new(pattern: &[u8]) -> Self {
        let (mut tokens, mut rest) = (Vec::new(), pattern);
        while let Some((first, behind)) = rest.split_first() {
            let (token, next) = match first {
                b'?' => (Token::Any, behind),
                b'*' => stars(behind),
                b'[' => match set(behind) {
                    Some((set, behind)) => (Token::Set(Box::new(set)), behind),
                    None => (Token::Never, behind),
                },
                b'\\' => match behind.split_first() {
                    Some((letter, behind)) => (Token::Byte(*letter), behind),
                    None => (Token::Never, behind),
                },
                letter => (Token::Byte(*letter), behind),
            };
            tokens.push(token);
            rest = next;
        }
        Self(tokens)
    }

    /// Parses a pattern as a shell does: a bracket that is not closed is an ordinary character.
    pub fn of_shell(pattern: &[u8]) -> Self {
        let mut letters = Vec::with_capacity(pattern.len());
        for (at, letter) in pattern.iter().enumerate() {
            let is_escaped = at > 0 && pattern[at - 1] == b'\\';
            if *letter == b'[' && !is_escaped && !pattern[at + 1..].contains(&b']') {
                letters.push(b'\\');
            }
            letters.push(*letter);
        }
        Self::new(&letters)
    }

    /// Whether the whole text, which is the concatenation of `pieces`, matches.
    pub fn is_match(&self, pieces: &[&[u8]], from: From) -> bool {
        let mut now = Positions::new(self.0.len());
        let mut next = Positions::new(self.0.len());
        now.add(&self.0, 0);
        for byte in pieces.iter().flat_map(|piece| piece.iter().copied()) {
            for position in &now.list {
                match self.0.get(*position) {
                    Some(Token::Star) if byte != b'/' => next.add(&self.0, *position),
                    Some(Token::Stars) => next.add(&self.0, *position),
                    Some(token) if token.is(byte) => next.add(&self.0, *position + 1),
                    _ => {}
                }
            }
            if from == From::AnyPart && byte == b'/' {
                next.add(&self.0, 0);
            }
            std::mem::swap(&mut now, &mut next);
            next.clear();
            if now.list.is_empty() && from == From::Start {
                return false;
            }
        }
        now.has(self.0.len())
    }
}

impl Token {
    /// Whether the token matches this one byte.
    fn is(&self, byte: u8) -> bool {
        match self {
            Self::Byte(letter) => *letter == byte,
            Self::Any => byte != b'/',
            Self::Set(set) => byte != b'/' && set.has(byte),
            Self::Star | Self::Stars | Self::Never => false,
        }
    }
}

/// The set of positions in a pattern that may match next, each once.
struct Positions {
    list: Vec<usize>,
    is_in: Vec<bool>,
}

impl Positions {
    fn new(tokens: usize) -> Self {
        Self { list: Vec::new(), is_in: vec![false; tokens + 1] }
    }

    /// Adds a position, and those behind stars, which may match nothing.
    fn add(&mut self, tokens: &[Token], mut position: usize) {
        while !std::mem::replace(&mut self.is_in[position], true) {
            self.list.push(position);
            match tokens.get(position) {
                Some(Token::Star | Token::Stars) => position += 1,
                _ => return,
            }
        }
    }

    fn has(&self, position: usize) -> bool {
        self.is_in[position]
    }

    fn clear(&mut self) {
        for position in self.list.drain(..) {
            self.is_in[position] = false;
        }
    }
}

/// Parses stars behind a first one.
fn stars(behind: &[u8]) -> (Token, &[u8]) {
    let more = behind.iter().take_while(|letter| **letter == b'*').count();
    (if more > 0 { Token::Stars } else { Token::Star }, &behind[more..])
}

/// Parses the set behind a `[`. Returns it and the rest of the pattern behind its `]`; `None` if it is not a valid set.
fn set(behind: &[u8]) -> Option<(Set, &[u8])> {
    let is_inverted = matches!(behind.first(), Some(b'!' | b'^'));
    let mut rest = if is_inverted { &behind[1..] } else { behind };
    let (mut set, mut before, mut is_first) = (Set::default(), None, true);
    loop {
        let (letter, behind) = rest.split_first()?;
        match (letter, behind, before) {
            (b']', _, _) if !is_first => {
                if is_inverted {
                    set.invert();
                }
                return Some((set, behind));
            }
            (b'\\', ..) => {
                let (letter, behind) = behind.split_first()?;
                set.add(*letter);
                (before, rest) = (Some(*letter), behind);
            }
            (b'-', [to, ..], Some(low)) if *to != b']' => {
                let behind = if *to == b'\\' { &behind[1..] } else { behind };
                let (high, behind) = behind.split_first()?;
                (low..=*high).for_each(|byte| set.add(byte));
                (before, rest) = (None, behind);
            }
            (b'[', [b':', name @ ..], _) => {
                let end = name.iter().position(|letter| *letter == b']')?;
                match name[..end].strip_suffix(b":") {
                    Some(class) => {
                        set.add_class(class).then_some(())?;
                        (before, rest) = (None, &name[end + 1..]);
                    }
                    None => {
                        set.add(b'[');
                        (before, rest) = (Some(b'['), behind);
                    }
                }
            }
            _ => {
                set.add(*letter);
                (before, rest) = (Some(*letter), behind);
            }
        }
        is_first = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(pattern: &str, text: &str) -> bool {
        Wild::new(pattern.as_bytes()).is_match(&[text.as_bytes()], From::Start)
    }

    #[test]
    fn bytes_wildcards_sets_and_classes_match() {
        for (pattern, text, met) in [
            ("a*b", "ab", true),
            ("a*b", "a/b", false),
            ("a**b", "a/x/b", true),
            ("a***b", "a/b", true),
            ("a?b", "a/b", false),
            ("[a-c]", "b", true),
            ("[!a-c]", "b", false),
            ("[^a-c]", "d", true),
            ("[!a]", "/", false),
            ("[]a]", "]", true),
            ("[a-]", "-", true),
            ("[a\\]b]", "]", true),
            ("[[:digit:]]x", "7x", true),
            ("[[:digit:]x]", "x", true),
            ("[[:nonsense:]]", "n", false),
            ("[[:]x", ":x", true),
            ("[[:digit]", "[", true),
            ("[a", "[a", false),
            ("{a,b}", "{a,b}", true),
            ("{a,b}", "a", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", false),
            ("*", "", true),
            ("", "", true),
        ] {
            assert_eq!(is(pattern, text), met, "{pattern} {text}");
        }
        assert!(Wild::new(b"\xff?").is_match(&[b"\xff\xfe"], From::Start));
        assert!(Wild::of_shell(b"a[b").is_match(&[b"a[b"], From::Start));
    }

    #[test]
    fn a_match_may_begin_behind_any_slash() {
        let wild = Wild::new(b"b**d");
        assert!(wild.is_match(&[b"a/b/c/d"], From::AnyPart));
        assert!(!wild.is_match(&[b"a/b/c/d"], From::Start));
        assert!(!wild.is_match(&[b"ab/c/d"], From::AnyPart));
        assert!(Wild::new(b"**/c").is_match(&[b"/", b"c"], From::Start), "text in pieces");
    }

    #[test]
    fn matching_takes_no_exponential_time() {
        let text = vec![b'a'; 4096];
        let pattern = [&b"*a".repeat(1000)[..], b"b"].concat();
        assert!(!Wild::new(&pattern).is_match(&[&text], From::Start));
    }
}
