//! Extracts the common name from a certificate, which names its host if there is no subjectAltName (RFC 9525 forbids
//! this for certificates of authorities). Pure; parses only as much of DER (X.690) as necessary.

/// DER tags.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// `[0]`, the version of a certificate.
const VERSION: u8 = 0xa0;
/// UTF8String, PrintableString, IA5String.
const STRINGS: [u8; 3] = [0x0c, 0x13, 0x16];

/// 2.5.4.3, `id-at-commonName`.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// The common name of the subject, if it has exactly one.
pub(super) fn common_name(certificate: &[u8]) -> Option<&str> {
    let (tbs, _) = of_tag(of_tag(certificate, SEQUENCE)?.0, SEQUENCE)?;
    let mut rest = tbs;
    if rest.first() == Some(&VERSION) {
        rest = value(rest)?.2;
    }
    // Serial number, algorithm, issuer, validity (RFC 5280 §4.1).
    for _ in 0..4 {
        rest = value(rest)?.2;
    }
    let (mut subject, _) = of_tag(rest, SEQUENCE)?;
    let mut found = None;
    while !subject.is_empty() {
        let (mut set, tail) = of_tag(subject, SET)?;
        subject = tail;
        while !set.is_empty() {
            let (attribute, tail) = of_tag(set, SEQUENCE)?;
            set = tail;
            let (kind, name) = of_tag(attribute, OBJECT_IDENTIFIER)?;
            if kind == COMMON_NAME && found.replace(text(name)?).is_some() {
                return None;
            }
        }
    }
    found
}

fn text(der: &[u8]) -> Option<&str> {
    let (tag, text, _) = value(der)?;
    if STRINGS.contains(&tag) { std::str::from_utf8(text).ok() } else { None }
}

/// The content of the first value in `der`, if it has this tag, and the bytes behind it.
fn of_tag(der: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = value(der)?;
    (tag == wanted).then_some((content, rest))
}

/// The tag and content of the first value in `der`, and the bytes behind it.
fn value(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [tag, first, rest @ ..] = der else { return None };
    let (length, rest) = match *first {
        short @ 0..=0x7f => (usize::from(short), rest),
        // Certificates are shorter than 16 MB.
        long @ 0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            (digits.iter().fold(0, |n, d| n << 8 | usize::from(*d)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn certificate(names: &[&str]) -> Vec<u8> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::OrganizationName, "example.org");
        names.iter().for_each(|n| params.distinguished_name.push(DnType::CommonName, *n));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_subjects_common_name_is_found() {
        assert_eq!(common_name(&certificate(&["a.example"])), Some("a.example"));
        assert_eq!(common_name(&certificate(&[])), None);
        let whole = certificate(&["a.example"]);
        (0..whole.len()).for_each(|n| assert_eq!(common_name(&whole[..n]), None));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(noise in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..400) {
            let mut bytes = certificate(&["a.example"]);
            _ = common_name(&noise);
            let at = at.min(bytes.len());
            bytes.splice(at..(at + noise.len()).min(bytes.len()), noise);
            _ = common_name(&bytes);
        }
    }
}
