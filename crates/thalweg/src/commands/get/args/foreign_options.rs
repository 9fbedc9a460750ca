//! Options that users of curl and wget are used to: accepted if they name the default behaviour, else refused with an
//! explanation.

/// Flags of others. Not in the help.
#[derive(clap::Args)]
pub struct ForeignOptions {
    /// `-f`: an error page never is a file here.
    #[arg(short = 'f', long = "fail", hide = true)]
    fail: bool,

    /// `-L`: redirects are always followed.
    #[arg(short = 'L', long = "location", hide = true)]
    location: bool,

    /// `-s`, as `--quiet`.
    #[arg(short = 's', long = "silent", hide = true)]
    pub silent: bool,

    /// `-S`: errors are always shown.
    #[arg(short = 'S', long = "show-error", hide = true)]
    show_error: bool,

    #[arg(short = 'c', long = "continue", hide = true, num_args = 0..=1, value_parser = proceed)]
    #[arg(default_missing_value = "")]
    proceed: Option<Never>,

    #[arg(short = 'k', long = "insecure", hide = true, num_args = 0..=1, value_parser = insecure)]
    #[arg(default_missing_value = "")]
    insecure: Option<Never>,

    #[arg(short = 'x', long = "proxy", hide = true, num_args = 0..=1, value_parser = proxy)]
    #[arg(default_missing_value = "")]
    proxy: Option<Never>,

    #[arg(short = 'z', long = "time-cond", hide = true, num_args = 0..=1, value_parser = newer)]
    #[arg(default_missing_value = "")]
    newer: Option<Never>,
}

/// The value of an option that is always refused.
#[derive(Clone, Copy, Debug)]
enum Never {}

fn proceed(_: &str) -> Result<Never, String> {
    Err("there is no such option: thalweg's own interrupted downloads continue without one, and \
         `-C -` with --sha256 or --blake3 continues another program's"
        .to_owned())
}

fn insecure(_: &str) -> Result<Never, String> {
    Err("certificates are always checked; --cacert FILE trusts another authority".to_owned())
}

fn proxy(_: &str) -> Result<Never, String> {
    Err("--via HOST:PORT tries a SOCKS5 relay besides the direct path, --path HOST:PORT uses it \
         alone; HTTP proxies are not supported"
        .to_owned())
}

fn newer(_: &str) -> Result<Never, String> {
    Err("there is no such option: a complete file that is as new as the server's is not fetched \
         again"
        .to_owned())
}
