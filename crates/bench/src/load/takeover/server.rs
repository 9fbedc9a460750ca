//! A PostgreSQL server for the experiment alone: Debian's programs, a temporary directory, and a socket in it.

use anyhow::{Context as _, ensure};
use std::{
    fs,
    os::unix::{fs::MetadataExt as _, fs::chown, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A server, stopped on drop.
pub struct TestServer {
    dir: PathBuf,
    bin: PathBuf,
    user: Option<(u32, u32)>,
}

impl TestServer {
    /// Creates and starts a server in its own directory below `place`.
    ///
    /// # Errors
    /// When PostgreSQL is not installed or does not start.
    pub fn start(place: &Path) -> anyhow::Result<Self> {
        let bin = programs().context("PostgreSQL is not installed (Debian: postgresql)")?;
        let (dir, user) = (place.join("postgres"), own_user()?);
        fs::create_dir(&dir)?;
        if let Some((uid, gid)) = user {
            chown(&dir, Some(uid), Some(gid))?;
        }
        let server = Self { dir, bin, user };
        let data = server.dir.join("data");
        let data = data.to_str().context("the directory's path is not valid UTF-8")?;
        let founded = ["-A", "trust", "-U", "thalweg", "-E", "UTF8", "--no-locale", "-D", data];
        server.run("initdb", &founded)?;
        let socket = server.dir.display();
        let options = format!("-k {socket} -c listen_addresses= -c max_connections=100");
        let log = format!("{socket}/log");
        server
            .run("pg_ctl", &["start", "-w", "-t", "60", "-o", &options, "-D", data, "-l", &log])?;
        Ok(server)
    }

    /// The URL of the database `postgres`.
    pub fn url(&self) -> String {
        let socket = self.dir.display().to_string().replace('/', "%2F");
        format!("postgres://thalweg@{socket}/postgres")
    }

    fn run(&self, program: &str, args: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(self.bin.join(program));
        command.args(args).current_dir(&self.dir).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        let status = command.status().with_context(|| program.to_owned())?;
        ensure!(status.success(), "{program} failed in {}", self.dir.display());
        Ok(())
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let data = self.dir.join("data").display().to_string();
        // The directory is removed in any case.
        _ = self.run("pg_ctl", &["stop", "-m", "immediate", "-D", &data]);
    }
}

/// The directory of the newest server programs of Debian, which are not in PATH.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let numbered = |dir: fs::DirEntry| {
        let version: u32 = dir.file_name().to_str()?.parse().ok()?;
        Some((version, dir.path().join("bin")))
    };
    let found = versions.filter_map(numbered).filter(|(_, bin)| bin.join("initdb").exists());
    found.max().map(|(_, bin)| bin)
}

/// The user and group to run the server as, because it refuses the superuser; `None` for those of this process.
fn own_user() -> anyhow::Result<Option<(u32, u32)>> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd")?;
    let entry = |name: &str| {
        let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    let found = entry("postgres").or_else(|| entry("nobody"));
    found.map(Some).context("there is no user account to run PostgreSQL as")
}
