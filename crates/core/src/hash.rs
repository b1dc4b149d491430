//! The hash of keys that instances and regions of any version must agree on.

/// FNV-1a, with the finalizer of MurmurHash3 (`fmix64`) so that similar texts differ in all bits. Fixed forever, and
/// independent of the slots of a Redis Cluster and of the hashes that choose shards.
#[derive(Clone, Copy, Debug)]
pub struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Adds bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Adds a text after its length, which separates adjacent texts: `ab`, `c` differs from `a`, `bc`.
    pub fn text(&mut self, text: &str) {
        self.bytes(&(text.len() as u64).to_le_bytes());
        self.bytes(text.as_bytes());
    }

    /// The hash.
    pub const fn finish(self) -> u64 {
        mixed(self.0)
    }

    /// The hash without the finalizer.
    pub(crate) const fn unmixed(self) -> u64 {
        self.0
    }
}

/// Mixes the bits of a hash.
pub(crate) const fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}
