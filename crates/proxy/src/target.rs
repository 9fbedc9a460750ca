//! Where a request is to go: the absolute form and the authority form of its target.

use hyper::{Method, Uri, http::uri::Authority};
use thalweg_wire::Destination;
use thiserror::Error;

/// What a request's target names (RFC 9112 §3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `CONNECT host:port`.
    Tunnel(Destination),
    /// `GET http://host/path`: to be forwarded.
    Forward(Forward),
    /// `GET /path`: a request to the proxy itself.
    Own,
}

/// An absolute `http` target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The origin.
    pub to: Destination,
    /// The target in origin form, as written.
    pub path: String,
    /// What `Host` must say: host and port as written, without a user name.
    pub host: String,
}

/// A target that cannot be gone to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    /// `CONNECT` without `host:port`, or a host that is none.
    #[error("`{0}` does not say host and port")]
    Authority(String),
    /// No scheme of a proxy.
    #[error(
        "this proxy forwards http:// URLs; for {0}:// a program asks it for a tunnel (CONNECT), \
         or goes directly"
    )]
    Scheme(String),
}

/// Reads the target of a request.
///
/// # Errors
/// [`TargetError`].
pub fn read(method: &Method, uri: &Uri) -> Result<Target, TargetError> {
    let authority = |a: &Authority| TargetError::Authority(bare(a).to_owned());
    match (uri.scheme_str(), uri.authority()) {
        (_, Some(at)) if *method == Method::CONNECT => {
            let port = at.port_u16().ok_or_else(|| authority(at))?;
            let to = Destination::new(at.host(), port).map_err(|_| authority(at))?;
            Ok(Target::Tunnel(to))
        }
        (_, None) if *method == Method::CONNECT => Err(TargetError::Authority(uri.to_string())),
        (Some(scheme), Some(at)) if scheme.eq_ignore_ascii_case("http") => {
            // `http://host:/` has the scheme's own port (RFC 3986 §6.2.3).
            let stated = bare(at).ends_with(at.host());
            let empty = bare(at).ends_with(':');
            let port = if stated || empty { Some(80) } else { at.port_u16() };
            let to = port.and_then(|port| Destination::new(at.host(), port).ok());
            let to = to.ok_or_else(|| authority(at))?;
            let path = uri.path_and_query().map_or("/", |p| p.as_str());
            let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
            Ok(Target::Forward(Forward { to, path, host: bare(at).to_owned() }))
        }
        (Some(scheme), Some(_)) => Err(TargetError::Scheme(scheme.to_owned())),
        (None, Some(at)) => Err(authority(at)),
        (_, None) => Ok(Target::Own),
    }
}

/// Without a user name and password, which no server is to see in `Host` (RFC 9110 §4.2.4).
fn bare(authority: &Authority) -> &str {
    let text = authority.as_str();
    text.rsplit_once('@').map_or(text, |(_, host)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(method: &str, uri: &str) -> Result<Target, TargetError> {
        read(&method.parse().unwrap(), &uri.parse().unwrap())
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
        ] {
            let Ok(Target::Forward(read)) = read_text("GET", uri) else { panic!("{uri}") };
            assert_eq!(read.to.to_string().to_ascii_lowercase(), to, "{uri}");
            assert_eq!((read.path.as_str(), read.host.as_str()), (path, host), "{uri}");
        }
    }

    #[test]
    fn connect_names_host_and_port() {
        let tunnel = |to: &str| Ok(Target::Tunnel(to.parse().unwrap()));
        assert_eq!(read_text("CONNECT", "a.example:443"), tunnel("a.example:443"));
        assert_eq!(read_text("CONNECT", "[::1]:22"), tunnel("[::1]:22"));
        for bad in ["a.example", "a.example:0", "/x"] {
            assert!(matches!(read_text("CONNECT", bad), Err(TargetError::Authority(_))), "{bad}");
        }
    }

    #[test]
    fn all_else_is_the_proxys_own_or_refused() {
        assert_eq!(read_text("GET", "/proxy.pac"), Ok(Target::Own));
        assert_eq!(read_text("OPTIONS", "*"), Ok(Target::Own));
        for scheme in ["https", "ftp"] {
            let read = read_text("GET", &format!("{scheme}://a.example/"));
            assert_eq!(read, Err(TargetError::Scheme(scheme.to_owned())));
        }
        assert!(read_text("GET", "http://a.example:99999/").is_err());
        assert!(read_text("GET", "a.example:80").is_err());
    }
}
