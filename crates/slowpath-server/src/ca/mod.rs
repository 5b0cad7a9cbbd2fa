// SPDX-License-Identifier: Apache-2.0
//! Who may ship: CAs, invitations, certificates of hosts, revocations.
//!
//! What enters: tokens, certificate signing requests, the time. What leaves: certificates, or why
//! there is none.
//!
//! What is promised: whatever is answered is on the disk before; a kill at any point leaves the state
//! before or after a change.

mod authorities;
mod certificate;
mod identity;
mod invitations;
mod request;
mod revocations;

pub use authorities::{Authorities, RENEWABLE_US};
pub use certificate::{CA_LIFE_US, HOST_LIFE_US, SERVER_LIFE_US};
pub use identity::{Identity, NoIdentity};
pub use invitations::{INVITATION_LIFE_US, InvitationError, Invitations};
pub use request::{RequestError, SigningRequest};
pub use revocations::Revocations;

use crate::state::{StateDirectory, StateError};
use ring::rand::{SecureRandom, SystemRandom};
use slowpath_model::WallMicros;
use slowpath_ship::identity::{HostName, Token};
use std::sync::Arc;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The token is refused.
    #[error(transparent)]
    Invitation(#[from] InvitationError),
    /// The request is refused.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The state cannot be kept.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Where random bytes come from; an argument, so that tests can choose them.
pub type Random = Box<dyn FnMut(&mut [u8]) + Send>;

/// The kernel's random numbers.
///
/// # Panics
/// The kernel has none: nothing secret could be made.
pub fn system_random() -> Random {
    let random = SystemRandom::new();
    Box::new(move |bytes| random.fill(bytes).expect("the kernel has random numbers"))
}

/// The CA of a server: all that decides who is who.
pub struct Ca {
    /// The CAs and the server's certificate.
    pub authorities: Authorities,
    invitations: Invitations,
    revocations: Arc<Revocations>,
    random: Random,
}

impl std::fmt::Debug for Ca {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ca").finish_non_exhaustive()
    }
}

impl Ca {
    /// Makes the first CA of a directory, and the server's certificate for these names.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn init(
        directory: &StateDirectory,
        names: &[String],
        now: WallMicros,
        random: Random,
    ) -> Result<Self, StateError> {
        Authorities::init(directory.path(), names, now)?;
        Ca::load(directory, random)
    }

    /// Reads what there is.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn load(directory: &StateDirectory, random: Random) -> Result<Self, StateError> {
        Ok(Ca {
            authorities: Authorities::load(directory.path())?,
            invitations: Invitations::in_directory(directory.path()),
            revocations: Arc::new(Revocations::load(directory.path())?),
            random,
        })
    }

    /// Which certificates no longer count.
    pub fn revocations(&self) -> Arc<Revocations> {
        self.revocations.clone()
    }

    /// Invites a host.
    ///
    /// # Errors
    /// The invitation cannot be kept.
    pub fn invite(&mut self, host: HostName, now: WallMicros) -> Result<Token, StateError> {
        let now = self.after_revocation(&host, now);
        let mut id = [0; 8];
        let mut secret = [0; 16];
        (self.random)(&mut id);
        (self.random)(&mut secret);
        let token = Token {
            host,
            id: u64::from_be_bytes(id),
            secret,
            fingerprint: self.authorities.fingerprint(),
        };
        self.invitations.add(&token, now)?;
        Ok(token)
    }

    /// A certificate for the host that a token invites, PEM.
    ///
    /// # Errors
    /// See [`IssueError`].
    pub fn join(
        &mut self,
        token: &Token,
        request: &str,
        now: WallMicros,
    ) -> Result<String, IssueError> {
        let request = SigningRequest::read(request)?;
        let key = request.key_for(&token.host)?;
        let revoked = self.revocations.revoked_until(&token.host);
        self.invitations
            .redeem(token, request.key_digest(), revoked, now)?;
        let random = self.random();
        self.issue(key, &token.host, now, random)
    }

    /// A certificate that follows the one by which a host proved who it is, PEM.
    ///
    /// # Errors
    /// See [`IssueError`].
    pub fn renew(
        &mut self,
        host: &HostName,
        request: &str,
        now: WallMicros,
    ) -> Result<String, IssueError> {
        let request = SigningRequest::read(request)?;
        let random = self.random();
        self.issue(request.key_for(host)?, host, now, random)
    }

    fn random(&mut self) -> [u8; 8] {
        let mut bytes = [0; 8];
        (self.random)(&mut bytes);
        bytes
    }

    fn issue(
        &self,
        key: &rcgen::PublicKey,
        host: &HostName,
        now: WallMicros,
        random: [u8; 8],
    ) -> Result<String, IssueError> {
        let issued = self.after_revocation(host, now);
        Ok(self.authorities.sign(key, host, issued, random)?)
    }

    /// Now, or just after the host was revoked, where the clock was set back since.
    fn after_revocation(&self, host: &HostName, now: WallMicros) -> WallMicros {
        let until = self.revocations.revoked_until(host);
        until.map_or(now, |until| now.max(WallMicros(until.0 + 1)))
    }
}

#[cfg(test)]
mod tests;
