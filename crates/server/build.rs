//! The web app is embedded: a new build of it is a new build of the server.

fn main() {
    println!("cargo::rerun-if-changed=../../web/dist");
}
