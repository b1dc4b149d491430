//! Units whose arithmetic saturates: what exceeds the range of a stored state is as good as its bound.

use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};

/// Declares a unit. Its sums, products and differences stay within the range of its number.
macro_rules! saturating {
    ($(#[$doc:meta])* $name:ident($number:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) struct $name(pub(crate) $number);

        impl From<$number> for $name {
            #[inline]
            fn from(number: $number) -> Self {
                Self(number)
            }
        }

        impl<T: Into<Self>> Add<T> for $name {
            type Output = Self;

            #[inline]
            fn add(self, other: T) -> Self {
                Self(self.0.saturating_add(other.into().0))
            }
        }

        impl<T: Into<Self>> Sub<T> for $name {
            type Output = Self;

            #[inline]
            fn sub(self, other: T) -> Self {
                Self(self.0.saturating_sub(other.into().0))
            }
        }

        impl<T: Into<Self>> Mul<T> for $name {
            type Output = Self;

            #[inline]
            fn mul(self, other: T) -> Self {
                Self(self.0.saturating_mul(other.into().0))
            }
        }

        impl<T: Into<Self>> AddAssign<T> for $name {
            #[inline]
            fn add_assign(&mut self, other: T) {
                *self = *self + other;
            }
        }

        impl<T: Into<Self>> SubAssign<T> for $name {
            #[inline]
            fn sub_assign(&mut self, other: T) {
                *self = *self - other;
            }
        }

        impl PartialEq<$number> for $name {
            #[inline]
            fn eq(&self, other: &$number) -> bool {
                self.0 == *other
            }
        }

        impl PartialOrd<$number> for $name {
            #[inline]
            fn partial_cmp(&self, other: &$number) -> Option<std::cmp::Ordering> {
                self.0.partial_cmp(other)
            }
        }
    };
}

saturating! {
    /// Number of hits, or of another quantity that is computed from them.
    Count(u64)
}

saturating! {
    /// Seconds, since the epoch or between two times.
    Seconds(u32)
}

impl Count {
    /// The number in the 32 bits that a state has for it.
    #[inline]
    pub(crate) fn word(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }
}
