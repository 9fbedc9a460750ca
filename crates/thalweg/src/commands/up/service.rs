//! `thalweg up --service`: the node as a systemd service.
//!
//! The commands that change the state run as the service's user, so that all files in it belong to that user. They are
//! the same commands that an operator would type (docs/mesh.md, "systemd").

use super::{check_program, own_addresses, write_template};
use anyhow::{Context as _, bail};
use std::{
    fs,
    io::Write as _,
    os::unix::fs::{PermissionsExt as _, chown},
    path::Path,
    process::{Command, ExitCode, Stdio},
};
use thalweg_console::note;
use thalweg_wire::{
    Destination,
    mesh::{Name, Token},
};

/// The service's user, unit and files.
const USER: &str = "thalweg";
const UNIT: &str = "thalweg-node";
const UNIT_FILE: &str = "/etc/systemd/system/thalweg-node.service";
const STATE: &str = "/var/lib/thalweg";
const SETTINGS: &str = "/etc/thalweg/config.toml";

/// The unit as it is delivered.
const UNIT_TEXT: &str = include_str!("../../../../../deploy/thalweg-node.service");

/// Makes this host a member, if it is none, and installs and starts its node as a service. Returns the exit code of the
/// check by `thalweg up`.
///
/// # Errors
/// If a step fails; the message says which. The steps before are kept, and are left out the next time.
pub fn install(
    token: Option<&Token>,
    name: Option<&Name>,
    addresses: &[Destination],
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    if !Path::new("/run/systemd/system").exists() {
        bail!("systemd does not run on this host; run `thalweg up` without --service");
    }
    if !rustix::process::geteuid().is_root() {
        bail!("--service installs a unit, which needs root: sudo thalweg up --service …");
    }
    let program = std::env::current_exe().context("cannot find this program")?;
    check_program(&program)?;
    let program = program.display().to_string();
    prepare_user()?;
    let settings = write_template(Path::new(SETTINGS));
    settings.with_context(|| format!("cannot write the settings {SETTINGS}"))?;
    if !Path::new(STATE).join("mesh.json").exists() {
        let arguments = member_command(token.is_some(), name, addresses);
        let token = token.map(ToString::to_string).unwrap_or_default();
        run(&mut as_user(&program, &arguments), &token)?;
    }
    install_unit(&program)?;
    run(Command::new("systemctl").args(["enable", "--now", UNIT]), "")?;
    note!("The service {UNIT} runs: `systemctl status {UNIT}`, `journalctl -u {UNIT}`.");
    let mut arguments = vec!["up".to_owned(), "--config".to_owned(), SETTINGS.to_owned()];
    arguments.extend(as_json.then(|| "--json".to_owned()));
    let status = as_user(&program, &arguments).status().context("cannot run runuser")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Creates the user and its directory, unless they exist.
fn prepare_user() -> anyhow::Result<()> {
    let is_there =
        Command::new("id").arg(USER).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        let options = ["--system", "--home-dir", STATE, "--shell", "/usr/sbin/nologin", USER];
        run(Command::new("useradd").args(options), "")?;
    }
    let (user, group) = (number_of("-u")?, number_of("-g")?);
    let prepare = || {
        fs::create_dir_all(STATE)?;
        fs::set_permissions(STATE, fs::Permissions::from_mode(0o700))?;
        chown(STATE, Some(user), Some(group))
    };
    prepare().with_context(|| format!("cannot give {STATE} to the user {USER}"))
}

/// The number of the service's user (`-u`) or group (`-g`).
fn number_of(option: &str) -> anyhow::Result<u32> {
    let output = Command::new("id").args([option, USER]).output().context("cannot run id")?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().with_context(|| format!("there is no user {USER}"))
}

/// The arguments with which this host founds or joins a mesh. The token comes on standard input, so that `ps` does not
/// show it.
fn member_command(joins: bool, name: Option<&Name>, addresses: &[Destination]) -> Vec<String> {
    let addresses = match joins {
        true => own_addresses(addresses),
        false => addresses.to_vec(),
    };
    let mut arguments = vec!["mesh".to_owned()];
    match joins {
        true => arguments.extend(["join".to_owned(), "-".to_owned()]),
        false => arguments.extend(["init".to_owned(), "--config".to_owned(), SETTINGS.to_owned()]),
    }
    if let Some(name) = name {
        arguments.extend(["--name".to_owned(), name.to_string()]);
    }
    for address in addresses {
        arguments.extend(["--address".to_owned(), address.to_string()]);
    }
    arguments
}

/// This program with these arguments, as the service's user, with its state.
fn as_user(program: &str, arguments: &[String]) -> Command {
    let mut command = Command::new("runuser");
    command.args(["-u", USER, "--", program]).args(arguments);
    command.args(["--state", STATE]).current_dir("/");
    command
}

/// The unit with this program.
fn unit(program: &str) -> String {
    let start = UNIT_TEXT.replace("ExecStart=thalweg ", &format!("ExecStart={program} "));
    start.replace("'thalweg config", &format!("'{program} config"))
}

/// Writes the unit, unless the host has one, for example of a package.
fn install_unit(program: &str) -> anyhow::Result<()> {
    let mut there = Command::new("systemctl");
    there.args(["cat", UNIT]).stdout(Stdio::null()).stderr(Stdio::null());
    let there = there.status().context("cannot run systemctl")?;
    if there.success() {
        return Ok(());
    }
    fs::write(UNIT_FILE, unit(program)).with_context(|| format!("cannot write {UNIT_FILE}"))?;
    run(Command::new("systemctl").arg("daemon-reload"), "")
}

/// Runs a command to its end, with this text as standard input.
fn run(command: &mut Command, input: &str) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = || format!("cannot run {name}");
    let mut child = command.stdin(Stdio::piped()).spawn().with_context(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that ends without reading it says why itself.
        _ = stdin.write_all(format!("{input}\n").as_bytes());
    }
    let status = child.wait().with_context(failed)?;
    if !status.success() {
        let words: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
        bail!(
            "`{name} {}` failed ({status}); `thalweg up --service` goes on here",
            words.join(" ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_runs_the_program_that_installed_it() {
        let unit = unit("/opt/thalweg/thalweg");
        assert!(unit.contains("\nExecStart=/opt/thalweg/thalweg node\n"), "{unit}");
        assert!(unit.contains("'/opt/thalweg/thalweg config reload ||"), "{unit}");
        assert!(!unit.contains("=thalweg ") && !unit.contains("'thalweg "), "{unit}");
        for line in [format!("User={USER}"), format!("Environment=THALWEG_STATE={STATE}")] {
            assert!(unit.lines().any(|found| found == line), "{line}");
        }
        let home = format!("Environment=XDG_CONFIG_HOME={}", "/etc");
        assert!(unit.contains(&home) && SETTINGS == "/etc/thalweg/config.toml");
    }

    #[test]
    fn the_token_is_not_among_the_arguments() {
        let (name, address) = ("nyc".parse().unwrap(), "192.0.2.1:7373".parse().unwrap());
        let joins = member_command(true, Some(&name), &[address]);
        assert_eq!(joins.join(" "), "mesh join - --name nyc --address 192.0.2.1:7373");
        let founds = member_command(false, None, &[]);
        assert_eq!(founds.join(" "), "mesh init --config /etc/thalweg/config.toml");
    }
}
