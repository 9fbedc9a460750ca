//! The authorities that prove web servers' names to `thalweg get`.

use thalweg_wire::doctor::Finding;

/// What reading the authorities gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Why they cannot be used.
    pub fault: Option<String>,
    /// `SSL_CERT_FILE` and `SSL_CERT_DIR`, as far as they are set.
    pub variables: Vec<(String, String)>,
}

/// Whether `https` URLs can be verified.
pub fn check(facts: &CertificateFacts) -> Vec<Finding> {
    let set: Vec<String> =
        facts.variables.iter().map(|(name, to)| format!("{name}={to}")).collect();
    let from = if set.is_empty() { "the system's store".to_owned() } else { set.join(", ") };
    let Some(why) = &facts.fault else {
        return vec![Finding::ok("certificates.usable", format!("read from {from}"))];
    };
    let remedy = match facts.variables.first() {
        Some((name, _)) => format!("unset {name}"),
        None => "apt-get install ca-certificates".to_owned(),
    };
    let found = Finding::error("certificates.unusable", format!("{from}: {why}"));
    vec![found.means("`thalweg get` refuses every https URL").remedy(remedy)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_names_no_certificates_is_named_in_the_remedy() {
        let variables = vec![("SSL_CERT_FILE".to_owned(), "/none.pem".to_owned())];
        let facts = CertificateFacts { fault: Some("no such file".to_owned()), variables };
        let found = check(&facts).remove(0);
        assert_eq!((&*found.id, &*found.remedy), ("certificates.unusable", "unset SSL_CERT_FILE"));
        assert!(found.seen.contains("/none.pem"));
        assert_eq!(check(&CertificateFacts::default())[0].id, "certificates.usable");
    }
}
