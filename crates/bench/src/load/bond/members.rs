//! The members of a mesh that exists for one measurement. Their keys are constants, which both ends know.

use thalweg_mesh::Membership;
use thalweg_net::PrivateKey;
use thalweg_units::WallTime;
use thalweg_wire::{
    Destination, Signed, Signer as _,
    mesh::{Member, Name, Role, Roster},
};

/// The mesh's own key.
fn mesh_key() -> PrivateKey {
    PrivateKey::from_seed(&[3; 32])
}

/// The key of the far end's daemon.
pub fn far_key() -> PrivateKey {
    PrivateKey::from_seed(&[1; 32])
}

/// The number of near ends.
pub const MOST: u8 = 10;

/// The key of the command line of the near end with this number, below [`MOST`].
pub fn near_key(number: u8) -> PrivateKey {
    // Seeds below 16 are those of the other keys.
    PrivateKey::from_seed(&[16 + number; 32])
}

/// The far end's name.
///
/// # Errors
/// Never; the name is valid.
pub fn far_name() -> anyhow::Result<Name> {
    Ok("far".parse()?)
}

/// The membership that the far end has: all members, without expiry.
///
/// # Errors
/// When the roster is invalid.
pub fn membership(at: Destination) -> anyhow::Result<Membership> {
    let member = |name: Name, node: Option<&PrivateKey>, client: &PrivateKey, at: Vec<_>| Member {
        name,
        node: node.map(PrivateKey::id),
        client: client.id(),
        addresses: at,
        roles: [Role::Client].into(),
        tags: [].into(),
    };
    let far = member(far_name()?, Some(&far_key()), &PrivateKey::from_seed(&[4; 32]), vec![at]);
    let mut members = vec![far];
    for number in 0..MOST {
        members.push(member(format!("near-{number}").parse()?, None, &near_key(number), vec![]));
    }
    let roster = Roster {
        version: 1,
        not_before: WallTime::from_unix_nanos(0),
        expiry: WallTime::from_unix_nanos(u64::MAX),
        members,
        rules: Vec::new(),
        endorsement: None,
        predecessor: None,
    };
    let membership = Membership::new(mesh_key().id(), None);
    membership.offer(&Signed::sign(roster, &mesh_key()).encode())?;
    Ok(membership)
}
