//! The user names and passwords for servers.

use super::args::WebArgs;
use anyhow::Context as _;
use std::path::PathBuf;
use thalweg_get::{Credentials, netrc::Netrc};

/// Reads the credentials of `-u`, or else those of the netrc file.
///
/// # Errors
/// If the file cannot be read, or `-u` has no password.
pub fn credentials(args: &WebArgs, note: &dyn Fn(String)) -> anyhow::Result<Credentials> {
    let mut credentials = Credentials::default();
    if let Some(user) = &args.user {
        let (user, password) = user
            .split_once(':')
            .context("-u takes USER:PASSWORD; without a password in it, use -n and a ~/.netrc")?;
        credentials.add_default(user, password);
        return Ok(credentials);
    }
    let file = match (&args.netrc_file, args.netrc) {
        (Some(file), _) => file.clone(),
        (None, false) => return Ok(credentials),
        (None, true) => {
            let file = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".netrc"));
            // As with curl, a missing file is no error.
            let Some(file) = file.filter(|file| file.exists()) else {
                note("-n: there is no ~/.netrc, so no login is sent".to_owned());
                return Ok(credentials);
            };
            file
        }
    };
    let shown = file.display();
    let netrc = Netrc::read(&file).with_context(|| format!("cannot read {shown}"))?;
    if Netrc::is_exposed(&file) {
        note(format!("others can read the passwords in {shown}: chmod 600 {shown}"));
    }
    netrc.logins().for_each(|(host, login)| match host {
        Some(host) => credentials.add(host, &login.user, &login.password),
        None => credentials.add_default(&login.user, &login.password),
    });
    Ok(credentials)
}
