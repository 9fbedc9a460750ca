//! The compared downloaders, with the options that their manuals recommend.

use crate::program;
use anyhow::Context as _;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// A downloader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Downloader {
    /// curl, following redirects
    Curl,
    /// wget, three tries instead of twenty
    Wget,
    /// aria2 with up to four connections, three tries
    Aria2,
    /// `thalweg get` over the direct path
    Get,
    /// `thalweg get` with the relays of `--via`
    Relays,
}

/// What all of them are told.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// The relays for `relays`, as in `thalweg get --via`
    #[arg(long, value_name = "RELAY,…", default_value = "none")]
    via: String,
    /// Further arguments of `thalweg get`
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    get_arg: Vec<String>,
    /// A certificate that all tools trust
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Seconds after which a download is aborted
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    limit: u64,
}

/// How a download ended.
#[derive(Clone, Debug)]
pub struct ToolEnd {
    /// The exit code; `None` if it was killed at the time limit.
    pub code: Option<i32>,
    /// Time from its start to its end.
    pub took: Duration,
    /// The last line of its standard error.
    pub words: String,
}

impl Downloader {
    /// The tool's name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Wget => "wget",
            Self::Aria2 => "aria2",
            Self::Get => "get",
            Self::Relays => "relays",
        }
    }

    /// Whether the tool is installed here.
    pub fn is_installed(self) -> bool {
        let program = match self {
            Self::Curl => "curl",
            Self::Wget => "wget",
            Self::Aria2 => "aria2c",
            Self::Get | Self::Relays => return program::product().is_ok(),
        };
        let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    }

    /// The command that downloads `url` to `file`, which is in its own directory.
    fn command(self, url: &str, file: &Path, settings: &Settings) -> anyhow::Result<Command> {
        let mut command = match self {
            Self::Curl => words("curl", &["-q", "-sS", "--fail", "--location", "--globoff", "-o"]),
            Self::Wget => words(
                "wget",
                &["--no-config", "-q", "--tries=3", "--waitretry=1", "--timeout=10", "-O"],
            ),
            Self::Aria2 => words(
                "aria2c",
                &[
                    "--no-conf",
                    "-q",
                    "-x",
                    "4",
                    "-k",
                    "1M",
                    "--max-tries=3",
                    "--retry-wait=1",
                    "--timeout=10",
                    "--allow-overwrite=true",
                    "--dir",
                ],
            ),
            Self::Get | Self::Relays => {
                let mut command = Command::new(program::product()?);
                command.args(["get", "-q", "--history", "none"]);
                match self {
                    Self::Relays => command.args(["--via", &settings.via]),
                    _ => command.arg("--no-relays"),
                };
                command.args(&settings.get_arg).arg("-o");
                command
            }
        };
        if self == Self::Aria2 {
            let name = file.file_name().context("a file's name")?;
            command.arg(file.parent().context("a directory")?).arg("--out").arg(name);
        } else {
            command.arg(file);
        }
        if let Some(trusted) = &settings.cacert {
            match self {
                Self::Wget | Self::Aria2 => {
                    command.arg(format!("--ca-certificate={}", trusted.display()))
                }
                _ => command.arg("--cacert").arg(trusted),
            };
        }
        command.arg(url);
        Ok(command)
    }

    /// Downloads `url` to `file`.
    ///
    /// # Errors
    /// When the tool cannot be started; its failure is a result.
    pub fn run(self, url: &str, file: &Path, settings: &Settings) -> anyhow::Result<ToolEnd> {
        let place = file.parent().context("a directory")?;
        let stderr = place.join(".stderr");
        let mut command = self.command(url, file, settings)?;
        for proxy in ["http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env_remove(proxy);
        }
        command.env("HOME", place).env("XDG_CONFIG_HOME", place).env("XDG_STATE_HOME", place);
        command.env("XDG_CACHE_HOME", place).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&stderr)?);
        let since = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {}", self.name()))?;
        let code = wait(child, Duration::from_secs(settings.limit))?;
        let took = since.elapsed();
        let text = fs::read(&stderr).unwrap_or_default();
        let words = String::from_utf8_lossy(&text).lines().last().unwrap_or_default().to_owned();
        Ok(ToolEnd { code, took, words })
    }
}

fn words(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    command
}

/// Waits for the exit code; `None` if the process was killed after `limit`.
fn wait(mut child: Child, limit: Duration) -> anyhow::Result<Option<i32>> {
    let pid = Pid::from_child(&child);
    let handle = pidfd_open(pid, PidfdFlags::empty()).context("cannot wait for a process")?;
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&limit))?;
    if ended == 0 {
        child.kill()?;
        child.wait()?;
        return Ok(None);
    }
    Ok(Some(child.wait()?.code().unwrap_or(-1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_end_is_killed() {
        let child = words("sleep", &["1000"]).spawn().unwrap();
        assert_eq!(wait(child, Duration::ZERO).unwrap(), None);
        let child = words("sh", &["-c", "exit 7"]).spawn().unwrap();
        assert_eq!(wait(child, Duration::from_secs(100)).unwrap(), Some(7));
    }

    #[test]
    fn each_tool_gets_its_own_options() {
        let settings = Settings {
            via: "a,b".into(),
            get_arg: vec![],
            cacert: Some("/c.pem".into()),
            limit: 1,
        };
        for (tool, wanted) in [
            (Downloader::Curl, "--cacert /c.pem http://x/"),
            (Downloader::Wget, "--ca-certificate=/c.pem http://x/"),
            (Downloader::Aria2, "--dir /d --out f --ca-certificate=/c.pem http://x/"),
        ] {
            let command = tool.command("http://x/", Path::new("/d/f"), &settings).unwrap();
            let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
            assert!(args.join(" ").ends_with(wanted), "{args:?}");
        }
    }
}
