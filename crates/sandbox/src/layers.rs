//! What shuts a room on this machine: which layers hold, by making a room and looking. A layer that is missing is
//! refused unless the operator allows that by name.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::frame::Kind;
use crate::inside::BUBBLEWRAP;
use crate::room::{Room, RoomError, RoomSettings};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Users, mounts, processes, network, IPC and host name of its own, in an empty root.
    Namespaces,
    /// Which files may be opened, once more.
    Landlock,
    /// Which system calls may be made.
    Seccomp,
}

impl Layer {
    pub const ALL: [Self; 3] = [Self::Namespaces, Self::Landlock, Self::Seccomp];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layer| layer.as_str() == name)
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::Namespaces => {
                "let this user make user namespaces (sysctl kernel.unprivileged_userns_clone=1, \
                 user.max_user_namespaces above 0, kernel.apparmor_restrict_unprivileged_userns=0; in a container its runtime must let it)"
            }
            Self::Landlock => "use a kernel from 5.13 on with Landlock switched on (lsm=landlock,…)",
            Self::Seccomp => "use a kernel with seccomp filters",
        }
    }
}

/// How rooms are made here, and what holds in them.
#[derive(Debug, Clone)]
pub struct Isolation {
    pub(crate) kind: Kind,
    pub layers: Vec<Layer>,
    pub missing: Vec<Layer>,
}

impl Isolation {
    /// For the start-up line and `doctor`.
    pub fn describe(&self) -> String {
        let by = match self.kind {
            Kind::Bubblewrap => "bubblewrap",
            Kind::Own => "own namespaces",
            Kind::Bare(_) => "no namespaces",
        };
        let names =
            |layers: &[Layer]| layers.iter().map(|layer| layer.as_str()).collect::<Vec<_>>().join(", ");
        let missing = if self.missing.is_empty() {
            "nothing is missing".into()
        } else {
            format!("missing, as allowed: {}", names(&self.missing))
        };
        format!(
            "{by}; enforced: {}, limits (of each process by the kernel, of all together by a watcher); {missing}",
            names(&self.layers)
        )
    }
}

/// Why no room can be made here, and what to do.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Makes a room each way, the best first, until one holds.
pub(crate) async fn inspect(
    settings: &RoomSettings,
    bubblewrap: bool,
    allowed: &[Layer],
) -> Result<Isolation, Refused> {
    let mut kinds = Vec::new();
    if !settings.without.contains(&Layer::Namespaces) {
        kinds.push(Kind::Own);
    }
    let installed = bubblewrap && BUBBLEWRAP.iter().any(|path| Path::new(path).exists());
    if installed && !kinds.is_empty() {
        kinds.insert(0, Kind::Bubblewrap);
    }
    if allowed.contains(&Layer::Namespaces) {
        kinds.push(Kind::Bare(String::new()));
    }
    let mut reasons = Vec::new();
    for kind in kinds {
        let layers = match look(settings, &kind).await {
            Ok(layers) => layers,
            Err(error) => {
                reasons.push(error.to_string());
                continue;
            }
        };
        let missing: Vec<Layer> = Layer::ALL.into_iter().filter(|layer| !layers.contains(layer)).collect();
        return match missing.iter().find(|layer| !allowed.contains(layer)) {
            Some(layer) => Err(refused(*layer, "")),
            None => Ok(Isolation { kind, layers, missing }),
        };
    }
    // It may be allowed what others are not.
    let other = if installed { "" } else { "; installing bubblewrap may do" };
    Err(refused(Layer::Namespaces, &format!(" ({}{other})", reasons.join("; "))))
}

async fn look(settings: &RoomSettings, kind: &Kind) -> Result<Vec<Layer>, RoomError> {
    let room = Room::open(settings, kind).await?;
    let layers = room.layers.clone();
    room.close().await;
    Ok(layers)
}

fn refused(layer: Layer, why: &str) -> Refused {
    let (name, remedy) = (layer.as_str(), layer.remedy());
    Refused(format!(
        "the built-in sandbox refuses to run: the layer {name} is missing on this machine{why}; {remedy}, or allow it by \
         name with SANDBOX_ALLOW_MISSING={name}, or use a sandbox elsewhere with SANDBOX_URL"
    ))
}
