//! A PostgreSQL server for tests: Debian's programs, a temporary directory, a socket in it.

#![allow(dead_code, reason = "not everybody who includes it uses all")]

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use std::{
    env, fs,
    io::{self, Write as _},
    os::unix::{fs::chown, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};
use tempfile::TempDir;

/// A server, which stops at the latest when this process ends, however it ends.
pub struct Cluster {
    dir: TempDir,
    bin: PathBuf,
    user: Option<(u32, u32)>,
    options: String,
    /// A process that stops the server when its standard input is closed.
    watch: Option<(Child, ChildStdin)>,
}

/// The server that tests share; `None` without PostgreSQL, and then the reason is printed. Where CI runs, every test
/// must run.
pub fn shared() -> Option<&'static Cluster> {
    static SHARED: OnceLock<Result<Cluster, String>> = OnceLock::new();
    match SHARED.get_or_init(Cluster::start) {
        Ok(cluster) => Some(cluster),
        Err(why) => {
            skip(why);
            None
        }
    }
}

/// Prints why a test is skipped, bypassing the capture of the tests' output.
pub fn skip(why: &str) {
    let _ = writeln!(io::stderr(), "skipped: {why}");
    let set = |name| env::var_os(name).is_some();
    assert!(!set("CI") || set("THALWEG_SKIP"), "cannot be tested here: {why}");
}

impl Cluster {
    /// Starts a new server, with the superuser `thalweg`, which needs no password at the socket.
    pub fn start() -> Result<Self, String> {
        Self::start_with(|_| String::new())
    }

    /// Starts a server with further options, for which `options` may put files into its directory.
    pub fn start_with(options: impl FnOnce(&Self) -> String) -> Result<Self, String> {
        let bin = programs().ok_or("PostgreSQL is not installed: scripts/setup does it")?;
        let (user, dir) = (own_user()?, tempfile::tempdir().map_err(|e| e.to_string())?);
        if let Some((uid, gid)) = user {
            chown(dir.path(), Some(uid), Some(gid)).map_err(|e| e.to_string())?;
        }
        let mut cluster = Self { dir, bin, user, options: String::new(), watch: None };
        let data = cluster.data();
        let founded = ["-A", "trust", "-U", "thalweg", "-E", "UTF8", "--no-locale", "--no-sync"];
        cluster.run("initdb", |c| c.args(founded).arg("-D").arg(&data))?;
        cluster.options = options(&cluster);
        cluster.launch()?;
        Ok(cluster)
    }

    /// Writes a file that only the server's user can read. Returns its path.
    pub fn put(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let file = self.dir.path().join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        if let Some((uid, gid)) = self.user {
            chown(&file, Some(uid), Some(gid)).unwrap();
        }
        file
    }

    /// Starts the server on its existing data.
    pub fn launch(&mut self) -> Result<(), String> {
        let socket = self.dir.path().display();
        let options = format!(
            "-k {socket} -c listen_addresses= -c fsync=off -c max_connections=400 \
             -c shared_buffers=16MB {}",
            self.options
        );
        let (data, log) = (self.data(), self.dir.path().join("log"));
        self.run("pg_ctl", |c| {
            c.args(["start", "-w", "-t", "120", "-o", &options])
                .arg("-D")
                .arg(&data)
                .arg("-l")
                .arg(&log)
        })?;
        let script = "cat; exec \"$0\" stop -m immediate -D \"$1\"";
        let mut watch = self.command(Path::new("sh"));
        watch.args(["-c", script]).arg(self.bin.join("pg_ctl")).arg(self.data());
        let mut watch = watch.stdin(Stdio::piped()).spawn().map_err(|e| e.to_string())?;
        let input = watch.stdin.take().unwrap();
        self.watch = Some((watch, input));
        Ok(())
    }

    /// Stops the server as `kill -9` would.
    pub fn stop(&mut self) {
        if let Some((mut watch, input)) = self.watch.take() {
            drop(input);
            watch.wait().unwrap();
        }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// A program that runs as the server's user without output.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    fn run(
        &self,
        program: &str,
        with: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Result<(), String> {
        let mut command = self.command(&self.bin.join(program));
        let out = self.dir.path().join(program);
        let file = fs::File::create(&out).map_err(|e| e.to_string())?;
        with(command.stdout(file.try_clone().unwrap()).stderr(file));
        let status = command.status().map_err(|e| format!("{program}: {e}"))?;
        let said = |name: &str| fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
        match status.success() {
            true => Ok(()),
            false => Err(format!("{program} failed: {}\n{}", said(program), said("log"))),
        }
    }

    /// A URL of this server's database `postgres`.
    pub fn url(&self) -> String {
        let socket = self.dir.path().to_str().unwrap().replace('/', "%2F");
        format!("postgres://thalweg@{socket}/postgres")
    }

    /// Creates an empty schema. Returns a URL that uses it.
    pub async fn new_schema(&self) -> String {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let name = format!("place_{}", LAST.fetch_add(1, Ordering::Relaxed));
        let mut admin = self.admin().await;
        admin.execute(AssertSqlSafe(format!("CREATE SCHEMA {name}"))).await.unwrap();
        admin.close().await.unwrap();
        format!("{}?options[search_path]={name}", self.url())
    }

    /// A further connection, beside the tested ones.
    pub async fn admin(&self) -> PgConnection {
        connect(&self.url()).await
    }
}

/// Connects to a URL as another program would.
pub async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The directory of the newest server's programs on Debian, which is not in PATH.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let numbered = |dir: fs::DirEntry| {
        let version: u32 = dir.file_name().to_str()?.parse().ok()?;
        Some((version, dir.path().join("bin")))
    };
    let found = versions.filter_map(numbered).filter(|(_, bin)| bin.join("initdb").exists());
    found.max().map(|(_, bin)| bin)
}

/// The user and group to run the server as, because it refuses the superuser; `None`: those of this process.
fn own_user() -> Result<Option<(u32, u32)>, String> {
    use std::os::unix::fs::MetadataExt as _;
    let own = fs::metadata("/proc/self").map_err(|e| e.to_string())?.uid();
    if own != 0 {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").map_err(|e| e.to_string())?;
    let entry = |name: &str| {
        let line = passwd.lines().find(|l| l.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    let found = entry("postgres").or_else(|| entry("nobody"));
    found.map(Some).ok_or_else(|| "there is no user to run PostgreSQL as".to_owned())
}
