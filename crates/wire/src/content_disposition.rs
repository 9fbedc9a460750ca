//! Reads a file's name from a `Content-Disposition` field (RFC 6266).

use crate::file_name;

/// Reads the file name of a `Content-Disposition` field and makes it safe for any directory; see [`file_name()`].
/// `None` if the field has no usable name.
///
/// `filename*` (RFC 8187: UTF-8 or ISO-8859-1) precedes `filename`, and is ignored if it cannot be decoded. Bytes
/// beyond ASCII in `filename` are UTF-8, or else ISO-8859-1. Only the last component of a path is taken (RFC 6266
/// §4.3), whatever the separator. If a parameter occurs twice, the first counts.
///
/// Forms that servers use although the RFC does not allow them are read too: names with spaces but without quotes, a
/// field without a type, `filename*` in quotes. A backslash that escapes neither a quote nor a backslash is an
/// unescaped Windows separator.
pub fn file_name(field: &[u8]) -> Option<String> {
    let (mut plain, mut extended) = (None, None);
    for (name, value) in Parameters(field) {
        if name.eq_ignore_ascii_case(b"filename*") {
            extended = extended.or_else(|| extended_value(&value));
        } else if name.eq_ignore_ascii_case(b"filename") && plain.is_none() {
            plain = Some(text(value));
        }
    }
    let safe = |name: String| file_name::safe_last_component(&name);
    extended.and_then(safe).or_else(|| plain.and_then(safe))
}

/// Iterates over the parameters of a field: names as written, values unquoted.
struct Parameters<'a>(&'a [u8]);

impl<'a> Iterator for Parameters<'a> {
    type Item = (&'a [u8], Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.0.is_empty() {
            let end = self.0.iter().position(|b| b";=".contains(b)).unwrap_or(self.0.len());
            let (name, rest) = self.0.split_at(end);
            let (found, rest) = match rest {
                [b'=', rest @ ..] => {
                    let (value, rest) = value(rest.trim_ascii_start());
                    (Some((name.trim_ascii(), value)), rest)
                }
                // The type, or a name without a value.
                rest => (None, rest),
            };
            self.0 = rest.strip_prefix(b";").unwrap_or(rest);
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

/// Splits `input` into the value at its start, unquoted, and the rest from the next `;` on.
fn value(input: &[u8]) -> (Vec<u8>, &[u8]) {
    let Some(quoted) = input.strip_prefix(b"\"") else {
        let (value, rest) = until_semicolon(input);
        return (value.trim_ascii().to_vec(), rest);
    };
    let (mut value, mut bytes) = (Vec::new(), quoted.iter().enumerate());
    while let Some((at, &byte)) = bytes.next() {
        match byte {
            b'"' => return (value, until_semicolon(&quoted[at + 1..]).1),
            b'\\' => match bytes.next() {
                Some((_, escaped)) if b"\"\\".contains(escaped) => value.push(*escaped),
                Some((_, other)) => value.extend([byte, *other]),
                None => {}
            },
            _ => value.push(byte),
        }
    }
    // The closing quote is missing: the field was truncated, and with it the name.
    (value, &[])
}

fn until_semicolon(input: &[u8]) -> (&[u8], &[u8]) {
    input.split_at(input.iter().position(|b| *b == b';').unwrap_or(input.len()))
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| latin1(e.as_bytes()))
}

fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|b| char::from(*b)).collect()
}

/// Reads `UTF-8'en'%e2%82%ac` (RFC 8187 §3.2).
fn extended_value(value: &[u8]) -> Option<String> {
    let mut parts = value.splitn(3, |b| *b == b'\'');
    let (charset, _language, encoded) = (parts.next()?, parts.next()?, parts.next()?);
    let bytes = percent_decoded(encoded)?;
    if charset.eq_ignore_ascii_case(b"utf-8") {
        String::from_utf8(bytes).ok()
    } else if charset.eq_ignore_ascii_case(b"iso-8859-1") {
        Some(latin1(&bytes))
    } else {
        None
    }
}

fn percent_decoded(mut encoded: &[u8]) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16);
    let mut bytes = Vec::with_capacity(encoded.len());
    while let Some((first, rest)) = encoded.split_first() {
        encoded = match (first, rest) {
            (b'%', [high, low, rest @ ..]) => {
                bytes.push(u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?);
                rest
            }
            (b'%', _) => return None,
            (plain, rest) => {
                bytes.push(*plain);
                rest
            }
        };
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rfcs_examples_are_read() {
        for (field, name) in [
            ("Attachment; filename=example.html", Some("example.html")),
            ("INLINE; FILENAME= \"an example.html\"", Some("an example.html")),
            ("attachment; filename*= UTF-8''%e2%82%ac%20rates", Some("€ rates")),
            (
                "attachment; filename=\"EURO rates\"; filename*=utf-8''%e2%82%ac%20rates",
                Some("€ rates"),
            ),
            ("attachment; filename*=iso-8859-1'en'%A3%20rates; filename=x", Some("£ rates")),
            ("attachment", None),
            ("", None),
        ] {
            assert_eq!(file_name(field.as_bytes()).as_deref(), name, "{field}");
        }
    }

    #[test]
    fn invalid_forms_that_servers_send_are_read() {
        for (field, name) in [
            (&b"attachment; filename=my file.zip ; size=3"[..], Some("my file.zip")),
            (b"filename=a.bin", Some("a.bin")),
            (b"attachment; filename=\"C:\\dir\\win.bin\"", Some("win.bin")),
            (b"attachment; filename=\"C:\\\\dir\\\\win.bin\"", Some("win.bin")),
            (b"attachment; filename=\"a;b=\\\"c\\\".bin\";x", Some("a;b=\"c\".bin")),
            (b"attachment; filename=\"caf\xc3\xa9\"", Some("café")),
            (b"attachment; filename=\"caf\xe9\"", Some("café")),
            (b"attachment; filename*=\"UTF-8''%41\"", Some("A")),
            (b"attachment; filename*=UTF-8''%ZZ; filename=b", Some("b")),
            (b"attachment; filename*=UTF-8''%ff; filename=b", Some("b")),
            (b"attachment; filename*=koi8-r''x; filename=b", Some("b")),
            (b"attachment; filename=a; filename=b", Some("a")),
            (b"attachment; filename=\"cut", Some("cut")),
            (b";;;=;=;filename=a", Some("a")),
        ] {
            assert_eq!(file_name(field).as_deref(), name, "{}", field.escape_ascii());
        }
    }

    #[test]
    fn hostile_names_stay_inside_the_directory() {
        for (field, name) in [
            ("attachment; filename=\"../../etc/passwd\"", Some("passwd")),
            ("attachment; filename=\"..\\\\..\\\\boot.ini\"", Some("boot.ini")),
            ("attachment; filename*=UTF-8''..%2f..%2f.bashrc", Some("_bashrc")),
            ("attachment; filename=\"/\"", None),
            ("attachment; filename=\"a/..\"", None),
            ("attachment; filename=\"-rf\"", Some("_rf")),
            ("attachment; filename*=UTF-8''a%00b%0ac; filename=d", Some("a_b_c")),
            ("attachment; filename*=UTF-8''..; filename=d", Some("d")),
        ] {
            assert_eq!(file_name(field.as_bytes()).as_deref(), name, "{field}");
        }
    }
}
