//! The web server of the demonstration.

use super::network::SERVER;
use super::process::{Running, TICK};
use super::scratch::Scratch;
use anyhow::{Context, bail};
use std::time::{Duration, Instant};
use thalweg_experiment::run::installed_programs;
use thalweg_experiment::run::stop::StopFlag;
use thalweg_lab::client::Lab;

/// The port of the web server.
pub const WEB_PORT: u16 = 8080;

/// The running web server.
pub struct FileServer {
    _running: Running,
    /// The name of the server program.
    pub program: &'static str,
}

impl FileServer {
    /// Starts nginx, or the lab's own small server if nginx is not installed.
    ///
    /// # Errors
    /// When it does not start; on Ctrl-C.
    pub fn start(lab: &Lab, scratch: &Scratch, stop: &StopFlag) -> anyhow::Result<Self> {
        if let Some(nginx) = installed_programs::find("nginx") {
            let config = scratch.path("nginx.conf");
            std::fs::write(&config, nginx_config(scratch))?;
            let mut command = lab.command(SERVER, nginx);
            command.arg("-p").arg(scratch.path("")).arg("-c").arg(&config);
            let mut running = Running::start(command, scratch, "nginx")?;
            wait_for_pid_file(&mut running, scratch, stop).context("nginx")?;
            return Ok(Self { _running: running, program: "nginx" });
        }
        let www = scratch.www();
        let listen = format!("[::]:{WEB_PORT}");
        let command = lab.tool(SERVER, &["http", &www.to_string_lossy(), "--listen", &listen]);
        let running = Running::start(command, scratch, "http")?;
        running.first_line(scratch, stop).context("thalweg-lab tool http")?;
        Ok(Self { _running: running, program: "thalweg-lab tool http" })
    }

    /// The URL of the file.
    pub fn url(&self) -> String {
        format!("http://{SERVER}:{WEB_PORT}/file.bin")
    }
}

/// The configuration of one process in the foreground with all its files in the scratch directory. The user is root
/// because the lab of an ordinary user has no other one.
fn nginx_config(scratch: &Scratch) -> String {
    let www = scratch.www();
    let temp = scratch.path("nginx-temp");
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temps: String = kinds
        .iter()
        .map(|kind| format!("  {kind}_temp_path {}-{kind};\n", temp.display()))
        .collect();
    format!(
        "user root;\ndaemon off;\nmaster_process off;\nerror_log stderr;\npid {pid};\n\
         events {{ worker_connections 256; }}\n\
         http {{\n  access_log off;\n  sendfile on;\n{temps}\
         \x20 server {{ listen [::]:{WEB_PORT} ipv6only=off; root {www}; }}\n}}\n",
        pid = scratch.path("nginx.pid").display(),
        www = www.display(),
    )
}

/// Waits for nginx's pid file, which it writes after its sockets listen.
fn wait_for_pid_file(
    nginx: &mut Running,
    scratch: &Scratch,
    stop: &StopFlag,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !scratch.path("nginx.pid").exists() {
        stop.check()?;
        if nginx.ended()?.is_some() || Instant::now() > deadline {
            bail!("the web server did not start: {}", scratch.log_tail(nginx.log()));
        }
        std::thread::sleep(TICK);
    }
    Ok(())
}
