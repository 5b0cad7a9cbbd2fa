// SPDX-License-Identifier: Apache-2.0
//! Invitations: what is kept of tokens, and how each is used by one key only.
//!
//! `invites/ID.json` is an invitation; once used it is `invites/ID.used`, with the digest of the
//! key, which is on the disk before the certificate is answered. The same key may ask again, because
//! an answer may be lost.

use crate::clock::DAY_US;
use crate::state::{self, StateError};
use serde::{Deserialize, Serialize};
use slowpath_model::WallMicros;
use slowpath_ship::identity::{Sha256, Token};
use std::path::{Path, PathBuf};

/// How long an invitation holds.
pub const INVITATION_LIFE_US: i64 = DAY_US;
/// How long an expired one is kept, so that who comes late learns why.
const KEPT_US: i64 = 30 * DAY_US;

#[derive(Debug, Serialize, Deserialize)]
struct Invitation {
    host: String,
    secret_sha256: String,
    expires_us: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_sha256: Option<String>,
}

/// Why a token is refused.
#[derive(Debug, thiserror::Error)]
pub enum InvitationError {
    /// There is no such invitation, or its secret is another.
    #[error("this server knows no such token")]
    Unknown,
    /// It was used by another key.
    #[error(
        "the token was used already, by another key; 'slowpath server invite HOST' makes another"
    )]
    Used,
    /// It has expired.
    #[error("the token has expired; 'slowpath server invite HOST' makes another")]
    Expired,
    /// The host was revoked since: who has the token is who was shut out.
    #[error("the host was revoked; 'slowpath server invite HOST' lets it join anew")]
    Revoked,
    /// The state cannot be read or kept.
    #[error(transparent)]
    State(#[from] StateError),
}

/// The invitations of a state directory.
#[derive(Debug)]
pub struct Invitations {
    folder: PathBuf,
}

impl Invitations {
    pub(crate) fn in_directory(directory: &Path) -> Self {
        Invitations {
            folder: directory.join("invites"),
        }
    }

    /// Keeps a new invitation, and forgets those that expired long ago.
    ///
    /// # Errors
    /// [`StateError::Write`].
    pub fn add(&self, token: &Token, now: WallMicros) -> Result<(), StateError> {
        let path = self.path(token, "json");
        state::create_folder(&self.folder)?;
        self.forget(now);
        let invitation = Invitation {
            host: token.host.to_string(),
            secret_sha256: token.secret_digest().to_string(),
            expires_us: now.0.saturating_add(INVITATION_LIFE_US),
            key_sha256: None,
        };
        state::write_json(&path, &invitation)
    }

    /// Uses the invitation for this key; it must be later than the host's revocation.
    ///
    /// # Errors
    /// See [`InvitationError`].
    pub fn redeem(
        &self,
        token: &Token,
        key: Sha256,
        revoked_until: Option<WallMicros>,
        now: WallMicros,
    ) -> Result<(), InvitationError> {
        let used = self.path(token, "used");
        let unused = self.path(token, "json");
        let (invitation, is_used) = match state::read_json::<Invitation>(&used)? {
            Some(invitation) => (invitation, true),
            None => {
                let invitation = state::read_json(&unused)?;
                (invitation.ok_or(InvitationError::Unknown)?, false)
            }
        };
        let Invitation {
            host,
            secret_sha256,
            expires_us,
            key_sha256,
        } = invitation;
        // Digests of 128 random bits: how long the comparison takes says nothing of them.
        if secret_sha256 != token.secret_digest().to_string() || host != token.host.as_str() {
            return Err(InvitationError::Unknown);
        }
        let made = WallMicros(expires_us.saturating_sub(INVITATION_LIFE_US));
        if revoked_until.is_some_and(|until| made <= until) {
            return Err(InvitationError::Revoked);
        }
        let key = key.to_string();
        if is_used && key_sha256.as_ref() != Some(&key) {
            return Err(InvitationError::Used);
        }
        if now.0 >= expires_us {
            return Err(InvitationError::Expired);
        }
        if !is_used {
            let invitation = Invitation {
                host,
                secret_sha256,
                expires_us,
                key_sha256: Some(key),
            };
            state::write_json(&used, &invitation)?;
            state::remove(&unused)?;
        }
        Ok(())
    }

    fn path(&self, token: &Token, extension: &str) -> PathBuf {
        self.folder.join(format!("{:016x}.{extension}", token.id))
    }

    /// What cannot be deleted now is with the next invitation.
    fn forget(&self, now: WallMicros) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else {
            return;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            if let Ok(Some(invitation)) = state::read_json::<Invitation>(&path)
                && now.0 > invitation.expires_us.saturating_add(KEPT_US)
            {
                let _ = state::remove(&path);
            }
        }
    }
}
