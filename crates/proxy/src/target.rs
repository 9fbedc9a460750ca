//! Parses the target of a program's request: absolute form, authority form, or origin form.
//!
//! Only scheme, host and port are parsed. Path and query are for the origin and pass byte for byte, even where RFC 3986
//! requires percent-encoding: origins accept such bytes, and would get them without a proxy.

use super::request_scanner::LineError;
use bytes::Bytes;
use hyper::Method;
use thalweg_wire::Destination;
use thiserror::Error;

/// What a request's target names (RFC 9112 §3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `CONNECT host:port`.
    Tunnel(Destination),
    /// `GET http://host/path`: to be forwarded.
    Forward(Forward),
    /// `GET /path` or `OPTIONS *`: a request to the proxy itself.
    Own(Bytes),
}

/// An absolute `http` target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The origin.
    pub to: Destination,
    /// The target in origin form, as written; `*` for an OPTIONS without a path.
    pub path: Bytes,
    /// The value of `Host`: host and port as written, without a user name.
    pub host: String,
}

/// Why a target is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    /// The request line is invalid.
    #[error(transparent)]
    Line(#[from] LineError),
    /// `CONNECT` without `host:port`, or with an invalid host.
    #[error("`{0}` is not a valid host and port")]
    Authority(String),
    /// Neither a path nor an absolute URL.
    #[error("`{0}` is not an absolute URL; a proxy needs one, as in http://host/path")]
    Form(String),
    /// A scheme that the proxy does not forward.
    #[error(
        "this proxy forwards only http:// URLs; for {0}://, request a tunnel (CONNECT) or connect \
         directly"
    )]
    Scheme(String),
}

/// Parses the target of a request.
///
/// # Errors
/// [`TargetError`].
pub fn read(method: &Method, target: &Bytes) -> Result<Target, TargetError> {
    if *method == Method::CONNECT {
        let to = std::str::from_utf8(target).ok().and_then(|text| text.parse().ok());
        return to.map(Target::Tunnel).ok_or_else(|| TargetError::Authority(shown(target)));
    }
    if target.starts_with(b"/") || (*method == Method::OPTIONS && target == "*") {
        return Ok(Target::Own(target.clone()));
    }
    let form = || TargetError::Form(shown(target));
    let at = target.windows(3).position(|three| three == b"://").ok_or_else(form)?;
    let scheme = std::str::from_utf8(&target[..at]).ok().filter(|text| is_scheme(text));
    match scheme.ok_or_else(form)? {
        scheme if scheme.eq_ignore_ascii_case("http") => absolute(method, &target.slice(at + 3..)),
        other => Err(TargetError::Scheme(other.to_owned())),
    }
}

/// Parses what follows `http://`.
fn absolute(method: &Method, rest: &Bytes) -> Result<Target, TargetError> {
    let end = rest.iter().position(|b| b"/?#".contains(b)).unwrap_or(rest.len());
    let path = match &rest[end..] {
        // RFC 9112 §3.2.4: the last proxy sends `*`.
        [] if *method == Method::OPTIONS => Bytes::from_static(b"*"),
        [b'/', ..] => rest.slice(end..),
        // RFC 9112 §3.2.1: the path is not empty.
        behind => [&b"/"[..], behind].concat().into(),
    };
    let (to, host) =
        authority(&rest[..end]).ok_or_else(|| TargetError::Authority(shown(bare(&rest[..end]))))?;
    Ok(Target::Forward(Forward { to, path, host }))
}

/// Parses host and port; also returns the value of `Host` (RFC 3986 §3.2).
fn authority(text: &[u8]) -> Option<(Destination, String)> {
    if !text.iter().all(|b| is_authority(*b)) || text.iter().filter(|b| **b == b'@').count() > 1 {
        return None;
    }
    let bare = std::str::from_utf8(bare(text)).ok()?;
    let named = bare.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    let (host, port) = match named {
        // `http://host:/` means the scheme's own port (RFC 3986 §6.2.3).
        Some((host, "")) => (host, 80),
        Some((host, port)) => (host, port.parse().ok()?),
        None => (bare, 80),
    };
    // An IPv6 address needs brackets, since its last group could be taken for a port.
    let is_bracketed = host.starts_with('[') || !host.contains(':');
    let to = is_bracketed.then(|| Destination::new(host, port).ok()).flatten()?;
    Some((to, bare.to_owned()))
}

/// Removes user name and password, which must not be sent in `Host` (RFC 9110 §4.2.4).
fn bare(authority: &[u8]) -> &[u8] {
    let at = authority.iter().rposition(|b| *b == b'@');
    at.map_or(authority, |at| &authority[at + 1..])
}

/// Whether this is a scheme (RFC 3986 §3.1).
fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

/// A byte of an authority (RFC 3986 §3.2). Percent-encoding is not accepted: names are for the DNS.
fn is_authority(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@[]".contains(&b)
}

/// The beginning of a target without its query, which may hold secrets, and safe to print.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.split(['?', '#'])
        .next()
        .unwrap_or_default()
        .chars()
        .take(64)
        .flat_map(char::escape_debug)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(method: &str, target: impl AsRef<[u8]>) -> Result<Target, TargetError> {
        read(&method.parse().unwrap(), &Bytes::copy_from_slice(target.as_ref()))
    }

    #[test]
    fn the_absolute_form_names_origin_path_and_host() {
        for (uri, to, path, host) in [
            ("http://a.example/x?y=1", "a.example:80", "/x?y=1", "a.example"),
            ("http://a.example", "a.example:80", "/", "a.example"),
            ("http://A.example:8080/", "a.example:8080", "/", "A.example:8080"),
            ("HTTP://[::1]:81/", "[::1]:81", "/", "[::1]:81"),
            ("http://[2001:db8::1]/", "[2001:db8::1]:80", "/", "[2001:db8::1]"),
            ("http://me:pw@a.example/", "a.example:80", "/", "a.example"),
            ("http://a.example?q", "a.example:80", "/?q", "a.example"),
            ("http://a.example:?q", "a.example:80", "/?q", "a.example:"),
            ("http://a_b.example:0080/", "a_b.example:80", "/", "a_b.example:0080"),
            ("http://127.0.0.1:9/://", "127.0.0.1:9", "/://", "127.0.0.1:9"),
            ("http://a.example#f", "a.example:80", "/#f", "a.example"),
            ("http://a.example/@b:9/", "a.example:80", "/@b:9/", "a.example"),
            ("http://a.example?http://b/", "a.example:80", "/?http://b/", "a.example"),
        ] {
            let Ok(Target::Forward(read)) = read_text("GET", uri) else { panic!("{uri}") };
            assert_eq!(read.to.to_string().to_ascii_lowercase(), to, "{uri}");
            assert_eq!((&read.path[..], read.host.as_str()), (path.as_bytes(), host), "{uri}");
        }
        let all: Vec<u8> = (b'!'..=0xff).filter(|b| *b != 0x7f).collect();
        let target = [&b"http://a/"[..], &all].concat();
        let Ok(Target::Forward(read)) = read_text("GET", target) else { panic!() };
        assert_eq!(read.path, [&b"/"[..], &all].concat());
    }

    #[test]
    fn connect_names_host_and_port() {
        let tunnel = |to: &str| Ok(Target::Tunnel(to.parse().unwrap()));
        assert_eq!(read_text("CONNECT", "a.example:443"), tunnel("a.example:443"));
        assert_eq!(read_text("CONNECT", "[::1]:22"), tunnel("[::1]:22"));
        for bad in ["a.example", "a.example:0", "/x", "u@a:1", "::1:22", "*", "a\u{e9}:1", "a/b:1"]
        {
            assert!(matches!(read_text("CONNECT", bad), Err(TargetError::Authority(_))), "{bad}");
        }
    }

    #[test]
    fn other_targets_are_the_proxys_own_or_refused() {
        let own = |path: &'static str| Ok(Target::Own(Bytes::from_static(path.as_bytes())));
        assert_eq!(read_text("GET", "/proxy.pac"), own("/proxy.pac"));
        assert_eq!(read_text("OPTIONS", "*"), own("*"));
        for scheme in ["https", "ftp", "x+y"] {
            let read = read_text("GET", format!("{scheme}://a.example/"));
            assert_eq!(read, Err(TargetError::Scheme(scheme.to_owned())));
        }
        let Ok(Target::Forward(read)) = read_text("OPTIONS", "http://a") else { panic!() };
        assert_eq!(read.path, "*");
        for form in ["a.example:80", "*", "x", "http:/a/", "1http://a/", "?q", "h\u{e9}://a/"] {
            assert!(matches!(read_text("GET", form), Err(TargetError::Form(_))), "{form}");
        }
        for host in [
            "a.example:99999",
            "a:0",
            "",
            ":80",
            "a b",
            "a<b",
            "a%41",
            "\u{e9}.example",
            "a@b@c",
            "::1",
            "[::1",
            "[::1%25lo]",
            "[a]",
            "a:b",
            "a\\b",
            "a|b",
            "a:80:80",
            "u@",
            "a:+80",
            "a\"",
        ] {
            let read = read_text("GET", format!("http://{host}/"));
            assert!(matches!(read, Err(TargetError::Authority(_))), "{host}: {read:?}");
        }
    }

    #[test]
    fn errors_show_a_target_safely_and_without_secrets() {
        let told = |target: &[u8]| read_text("GET", target).unwrap_err().to_string();
        assert_eq!(told(b"http://me:pw@b<d/x?key=1"), "`b<d` is not a valid host and port");
        assert!(!told(b"x?key=1").contains("key"), "{}", told(b"x?key=1"));
        assert!(told(&[0xe9; 5000]).len() < 500);
    }
}
