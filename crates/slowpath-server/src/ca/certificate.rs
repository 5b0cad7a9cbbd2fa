// SPDX-License-Identifier: Apache-2.0
//! The certificates that are made here: of CAs, of the server, of hosts.

use crate::clock::DAY_US;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, Error,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
    SerialNumber,
};
use slowpath_model::WallMicros;
use slowpath_ship::identity::{HostName, san_uri};
use std::time::Duration;

/// How long a CA's certificate holds: ten years.
pub const CA_LIFE_US: i64 = 3_653 * DAY_US;
/// How long the server's holds.
pub const SERVER_LIFE_US: i64 = 90 * DAY_US;
/// How long a host's holds.
pub const HOST_LIFE_US: i64 = 30 * DAY_US;
/// How long before they are made certificates begin to hold: clocks of hosts are wrong, and ours may
/// be set back.
const BACKDATED_US: i64 = DAY_US;
/// Bytes of the random part of a host's serial number.
const RANDOM: usize = 8;

/// A new CA's own certificate.
pub(crate) fn of_authority(key: &KeyPair, now: WallMicros) -> Result<Certificate, Error> {
    let mut params = CertificateParams::default();
    life(&mut params, now, CA_LIFE_US);
    // Two CAs have two names, and whoever lists them sees which is the newer.
    let begun = now.0 / 1_000_000;
    params.distinguished_name = name(&format!("slowpath CA {begun}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.self_signed(key)
}

/// The server's, for the names by which agents reach it: DNS names and addresses.
pub(crate) fn of_server(
    key: &KeyPair,
    names: &[String],
    issuer: &Issuer<'_, KeyPair>,
    now: WallMicros,
) -> Result<Certificate, Error> {
    let mut params = CertificateParams::new(names)?;
    life(&mut params, now, SERVER_LIFE_US);
    params.distinguished_name = name("slowpath server");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params.signed_by(key, issuer)
}

/// A host's, issued at that moment, which its serial number carries.
pub(crate) fn of_host(
    key: &impl PublicKeyData,
    host: &HostName,
    issuer: &Issuer<'_, KeyPair>,
    issued: WallMicros,
    random: [u8; RANDOM],
) -> Result<Certificate, Error> {
    let mut params = CertificateParams::default();
    life(&mut params, issued, HOST_LIFE_US);
    params.distinguished_name = name("slowpath agent");
    params.subject_alt_names = vec![SanType::URI(san_uri(host).try_into()?)];
    params.serial_number = Some(serial(issued, random));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    params.signed_by(key, issuer)
}

/// The moment of issue, which no two certificates of a host share, and random bytes. A revocation
/// is of all that were issued before it; so it needs no list of them.
fn serial(issued: WallMicros, random: [u8; RANDOM]) -> SerialNumber {
    let mut bytes = issued.0.max(1).to_be_bytes().to_vec();
    bytes.extend(random);
    // A DER integer has no zeros in front (X.690 8.3.2).
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    SerialNumber::from_slice(&bytes[zeros..])
}

/// When a host's certificate with this serial number was issued; `None`: it is none of ours.
pub(crate) fn issued(serial: &[u8]) -> Option<WallMicros> {
    let serial = match serial {
        [0, rest @ ..] => rest,
        all => all,
    };
    let time = serial.len().checked_sub(RANDOM)?;
    if !(1..=8).contains(&time) {
        return None;
    }
    let number = serial[..time]
        .iter()
        .fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    i64::try_from(number).ok().map(WallMicros)
}

fn life(params: &mut CertificateParams, now: WallMicros, length_us: i64) {
    let at = |us: i64| {
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs((us.max(0) / 1_000_000) as u64)
    };
    params.not_before = at(now.0 - BACKDATED_US);
    params.not_after = at(now.0.saturating_add(length_us));
}

fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_carries_the_moment_of_issue() {
        for us in [1, 255, 128, 1_795_000_000_000_000, i64::MAX] {
            let serial = serial(WallMicros(us), [0; RANDOM]).to_bytes();
            assert_eq!(issued(&serial), Some(WallMicros(us)), "{us}");
            // As DER writes it when the highest bit is set.
            let mut padded = vec![0];
            padded.extend(&serial);
            assert_eq!(issued(&padded), Some(WallMicros(us)), "{us}");
        }
        assert_eq!(issued(&[1, 2, 3]), None);
        assert_eq!(issued(&[1; 20]), None);
    }
}
