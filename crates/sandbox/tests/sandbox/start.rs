//! What the service says at its start, and what it refuses.

use std::io::Read as _;

use crate::world::{Service, command, users};

#[test]
fn the_start_says_which_layers_hold() {
    for user in users() {
        let line = Service::start(user, &[]).line.clone();
        assert!(line.contains("own namespaces; enforced: namespaces, landlock, seccomp, limits"), "{line}");
    }
}

#[test]
fn a_missing_layer_is_refused_by_name_and_can_be_allowed() {
    for layer in ["namespaces", "landlock", "seccomp"] {
        let mut child = command(None, &[("SANDBOX_WITHOUT", layer)]).spawn().unwrap();
        let mut words = String::new();
        child.stderr.take().unwrap().read_to_string(&mut words).unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(words.contains(&format!("SANDBOX_ALLOW_MISSING={layer}")), "{words}");
        let allowed = Service::start(None, &[("SANDBOX_WITHOUT", layer), ("SANDBOX_ALLOW_MISSING", layer)]);
        assert!(allowed.line.contains(&format!("missing, as allowed: {layer}")), "{}", allowed.line);
    }
}
