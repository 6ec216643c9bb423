//! What kind of network an address belongs to: the rule of who may be called on whose word.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    Public,
    /// This machine.
    Loopback,
    /// The operator's own network.
    Private,
    /// Nothing that anyone should call: link-local (where clouds keep their secrets), multicast, reserved.
    Never,
}

/// An address that carries another one within is as that one is, and never private or loopback by that way.
pub fn reach(address: IpAddr) -> Reach {
    match address.to_canonical() {
        IpAddr::V4(v4) => reach_v4(v4),
        IpAddr::V6(v6) => reach_v6(v6),
    }
}

fn reach_v4(address: Ipv4Addr) -> Reach {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        (127, ..) => Reach::Loopback,
        (10, ..) | (172, 16..=31, _) | (192, 168, _) | (100, 64..=127, _) => Reach::Private,
        (0, ..)
        | (169, 254, _)
        | (192, 0, 0 | 2)
        | (192, 88, 99)
        | (198, 18..=19, _)
        | (198, 51, 100)
        | (203, 0, 113)
        | (224.., ..) => Reach::Never,
        _ => Reach::Public,
    }
}

fn reach_v6(address: Ipv6Addr) -> Reach {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let within = |high: u16, low: u16| {
        let [a, b, c, d] = [high >> 8, high & 255, low >> 8, low & 255].map(|part| part as u8);
        if reach_v4(Ipv4Addr::new(a, b, c, d)) == Reach::Public { Reach::Public } else { Reach::Never }
    };
    match (a, b) {
        _ if address.is_loopback() => Reach::Loopback,
        // NAT64 and 6to4.
        (0x64, 0xff9b) if [c, d, e, f] == [0; 4] => within(g, h),
        (0x2002, _) => within(b, c),
        (0xfc00..=0xfdff, _) => Reach::Private,
        // Special purposes, Teredo among them; documentation.
        (0x2001, ..0x200 | 0xdb8) | (0x3fff, ..0x1000) => Reach::Never,
        (0x2000..=0x3fff, _) => Reach::Public,
        _ => Reach::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_an_inner_address_is_known() {
        for (reached, addresses) in [
            (Reach::Public, "1.1.1.1 8.8.8.8 100.63.0.1 172.32.0.1 192.167.1.1 198.17.0.1 223.255.255.255"),
            (Reach::Public, "2606:4700::1111 2a00:1450::1 ::ffff:8.8.8.8 64:ff9b::808:808 2002:808:808::1"),
            (Reach::Loopback, "127.0.0.1 127.255.255.254 ::1 ::ffff:127.0.0.1 ::ffff:7f00:1"),
            (Reach::Private, "10.0.0.1 172.16.0.1 172.31.255.255 192.168.0.1 100.64.0.1 100.127.255.255"),
            (Reach::Private, "fc00::1 fd12:3456::1 ::ffff:10.0.0.1 ::ffff:c0a8:1"),
            (
                Reach::Never,
                "0.0.0.0 0.1.2.3 169.254.169.254 192.0.0.1 192.0.2.1 192.88.99.1 198.18.0.1 198.19.255.1",
            ),
            (Reach::Never, "198.51.100.1 203.0.113.1 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255"),
            (
                Reach::Never,
                ":: ::127.0.0.1 ::10.0.0.1 fe80::1 fec0::1 ff02::1 2001:db8::1 2001::1 3fff::1 100::1",
            ),
            (Reach::Never, "64:ff9b::7f00:1 64:ff9b::a00:1 64:ff9b:1::808:808 2002:7f00:1::1 2002:c0a8:1::1"),
            (Reach::Never, "::ffff:169.254.169.254 ::ffff:0:127.0.0.1 5f00::1 4000::1"),
        ] {
            for text in addresses.split(' ') {
                assert_eq!(reach(text.parse().unwrap()), reached, "{text}");
            }
        }
    }
}
