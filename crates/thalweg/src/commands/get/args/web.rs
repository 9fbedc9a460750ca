//! Options of `thalweg get` about requests and connections.

use super::super::duration::seconds;
use std::{path::PathBuf, time::Duration};
use thalweg_get::HttpVersion;

/// Fields, credentials, TLS, timeouts of a connection.
#[derive(clap::Args)]
#[command(next_help_heading = "Servers")]
pub struct WebArgs {
    /// A further request header, sent only to the server of the URL
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    pub header: Vec<String>,

    /// The User-Agent header [default: thalweg/VERSION]
    #[arg(short = 'A', long, value_name = "NAME")]
    pub user_agent: Option<String>,

    /// Log in to the server of the URL (Basic). Other users of this host can see it in the list of
    /// processes; -n is safer
    #[arg(short, long, value_name = "USER:PASSWORD")]
    pub user: Option<String>,

    /// Answer Digest challenges (the default; accepted as for curl)
    #[arg(long)]
    digest: bool,

    /// Take user and password from ~/.netrc
    #[arg(short = 'n', long)]
    pub netrc: bool,

    /// Take user and password from this file
    #[arg(long, value_name = "FILE")]
    pub netrc_file: Option<PathBuf>,

    /// Also trust the certificate authorities in this PEM file
    #[arg(long, value_name = "FILE")]
    pub cacert: Vec<PathBuf>,

    /// Use HTTP/1.1 (the default; accepted as for curl)
    #[arg(long = "http1.1", conflicts_with = "http2")]
    http1: bool,

    /// Use HTTP/2 if an https server offers it
    #[arg(long)]
    http2: bool,

    /// How long connecting may take on each path; in seconds unless a unit is given
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = seconds)]
    pub connect_timeout: Duration,
}

impl WebArgs {
    /// The version of HTTP to use.
    pub fn version(&self) -> HttpVersion {
        if self.http2 { HttpVersion::Http2 } else { HttpVersion::Http1 }
    }
}
