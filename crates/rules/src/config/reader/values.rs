//! Values of single keys, and the descriptions of wrong ones.

use std::rc::Rc;

use tollgate_core::{EnforcedShare, descriptor::Hits};

use super::{KeyValue, Reader};
use crate::NotifyThresholds;
use crate::config::problem::Path;
use crate::config::raw::{
    Field, RawBan, RawCarry, RawCarryKeys, RawInherit, RawLimit, RawRateLimit, RawReserve, RawShedding,
    Stated,
};
use crate::config::vocabulary::{Section, Shape};
use crate::config::yaml::{Content, Meaning, Node, Position, Scalar, describe, excerpt};

impl Reader<'_> {
    pub(in crate::config) fn text(&mut self, node: &Node, path: &Path<'_>) -> Field<Rc<str>> {
        let Content::Scalar(scalar) = &node.content else {
            return self.invalid(node, path, "a text");
        };
        match scalar.meaning() {
            Meaning::Null => Field::Absent,
            Meaning::Float(_) => {
                self.reject_float(scalar, node.at, path);
                Field::Invalid
            }
            // The text of a number or a bool is its source: `value: on` is the text "on".
            Meaning::Bool(_) | Meaning::Integer(_) | Meaning::Text => {
                Field::Stated(Stated { at: node.at, value: scalar.text.clone() })
            }
        }
    }

    /// Reads a list; invalid if `read` has no value for one of its elements, which it reports.
    fn list<T>(
        &mut self,
        list: &Node,
        path: &Path<'_>,
        read: impl FnMut(&mut Self, usize, &Node, &Path<'_>) -> Option<T>,
    ) -> Field<Vec<T>> {
        if is_null(list) {
            return Field::Absent;
        }
        let values = self.each_item(list, path, read);
        let is_valid = matches!(&list.content, Content::List(items) if items.len() == values.len());
        stated_if(is_valid, list, values)
    }

    fn texts(&mut self, node: &Node, path: &Path<'_>) -> Field<Vec<Stated<Rc<str>>>> {
        self.list(node, path, |reader, _, item, path| {
            let text = reader.text(item, path);
            if !text.is_present() {
                reader.wrong_type(item, path, "a text");
            }
            text.into_stated()
        })
    }

    pub(super) fn reject_float(&mut self, scalar: &Scalar, at: Position, path: &Path<'_>) {
        if matches!(scalar.meaning(), Meaning::Float(_)) {
            let text = excerpt(&scalar.text);
            let message =
                format!("`{text}` is a number with a fraction; quote it to make it a text: \"{text}\"");
            self.problems.error(self.file, at, path, message);
        }
    }

    pub(in crate::config) fn number(&mut self, node: &Node, path: &Path<'_>) -> Field<u32> {
        // The bound is that of the type.
        self.whole_number(node, path, u32::MAX.into()).map(|number| number as u32)
    }

    /// Reads a number of hits, which Redis counts exactly.
    fn hits(&mut self, node: &Node, path: &Path<'_>) -> Field<u64> {
        self.whole_number(node, path, Hits::MAX)
    }

    fn whole_number(&mut self, node: &Node, path: &Path<'_>, max: u64) -> Field<u64> {
        let number = match &node.content {
            Content::Scalar(scalar) => match scalar.meaning() {
                Meaning::Null => return Field::Absent,
                Meaning::Integer(number) => u64::try_from(number).ok(),
                Meaning::Bool(_) | Meaning::Float(_) | Meaning::Text => None,
            },
            Content::List(_) | Content::Map(_) => None,
        };
        match number.filter(|number| *number <= max) {
            Some(value) => Field::Stated(Stated { at: node.at, value }),
            None => self.invalid(node, path, &format!("a whole number from 0 to {max}")),
        }
    }

    /// Reads a part of a whole: `0.8` or `80%`.
    fn ratio(&mut self, node: &Node, path: &Path<'_>) -> Field<f64> {
        self.part(node, path, "a part such as 0.8 or 80%", 100.0, |part| {
            (0.0..=1.0).contains(&part).then_some(part)
        })
    }

    /// Reads a percentage.
    fn share(&mut self, node: &Node, path: &Path<'_>) -> Field<EnforcedShare> {
        let expected = "a percentage from 0 to 100 with at most two decimals, such as 10 or 0.5";
        self.part(node, path, expected, 1.0, |percent| EnforcedShare::from_percent(percent).ok())
    }

    /// Reads a number, or a percentage, which is divided.
    #[allow(clippy::float_arithmetic)] // A setting, whose last digit does not matter.
    fn part<T>(
        &mut self,
        node: &Node,
        path: &Path<'_>,
        expected: &str,
        divisor: f64,
        read: impl FnOnce(f64) -> Option<T>,
    ) -> Field<T> {
        let Content::Scalar(scalar) = &node.content else { return self.invalid(node, path, expected) };
        let number = match scalar.meaning() {
            Meaning::Null => return Field::Absent,
            Meaning::Float(number) => Some(number),
            Meaning::Integer(number) => Some(number as f64),
            Meaning::Text => {
                let percent = scalar.text.strip_suffix('%');
                percent.and_then(|number| number.trim().parse().ok()).map(|number: f64| number / divisor)
            }
            Meaning::Bool(_) => None,
        };
        let value = number.and_then(read).map(|value| Stated { at: node.at, value });
        value.map_or_else(|| self.invalid(node, path, expected), Field::Stated)
    }

    /// Reads a list of whole percentages: `[50%, 100%]`.
    fn thresholds(&mut self, node: &Node, path: &Path<'_>) -> Field<Vec<u16>> {
        self.list(node, path, |reader, _, item, path| {
            let percent = match &item.content {
                Content::Scalar(scalar) => scalar.text.strip_suffix('%').and_then(|text| text.parse().ok()),
                Content::List(_) | Content::Map(_) => None,
            };
            let percent = percent.filter(|percent| (1..=NotifyThresholds::MAX_PERCENT).contains(percent));
            if percent.is_none() {
                reader.wrong_type(item, path, "a whole percentage from 1% to 1000%, such as 80%");
            }
            percent
        })
    }

    fn limits(&mut self, list: &Node, path: &Path<'_>) -> Field<Vec<RawLimit>> {
        self.list(list, path, |reader, index, node, path| {
            let limit = reader.section(node, path, Section::RateLimit);
            if !limit.is_present() {
                reader.wrong_type(node, path, "a mapping");
            }
            limit.into_stated().map(|limit| RawLimit { index, limit })
        })
    }

    /// Reads a limit that is compared with the one around it.
    fn candidate(&mut self, node: &Node, path: &Path<'_>) -> Field<Box<Stated<RawRateLimit>>> {
        let limit = self.section(node, path, Section::Candidate);
        limit.map(|value| Box::new(Stated { at: node.at, value }))
    }

    /// Reads `true`, `false` or a mapping of `debt` and `unused`.
    fn carry(&mut self, node: &Node, path: &Path<'_>) -> Field<RawCarry> {
        if !matches!(node.content, Content::Map(_)) {
            return self.flag(node, path).map(|debt| RawCarry { debt, unused: 0 });
        }
        match self.section::<RawCarryKeys>(node, path, Section::Carry) {
            Field::Stated(Stated { value: RawCarryKeys { debt, unused }, .. }) => {
                let is_valid = debt.valid().is_some() && unused.valid().is_some();
                stated_if(is_valid, node, RawCarry { debt: debt.or_default(), unused: unused.or_default() })
            }
            Field::Absent | Field::Invalid => Field::Invalid,
        }
    }

    /// Reads a whole percentage: `20%` or `0.2`.
    #[allow(clippy::float_arithmetic)] // A setting, whose last digit does not matter.
    fn percent(&mut self, node: &Node, path: &Path<'_>) -> Field<u8> {
        let percent = match self.ratio(node, path) {
            Field::Absent => return Field::Absent,
            Field::Invalid => return Field::Invalid,
            Field::Stated(ratio) => ratio.value * 100.0,
        };
        if (percent - percent.round()).abs() > 1e-6 {
            return self.invalid(node, path, "a whole percentage such as 20%");
        }
        // At most 100.
        Field::Stated(Stated { at: node.at, value: percent.round() as u8 })
    }

    pub(in crate::config) fn flag(&mut self, node: &Node, path: &Path<'_>) -> Field<bool> {
        let Content::Scalar(scalar) = &node.content else {
            return self.invalid(node, path, "true or false");
        };
        match scalar.meaning() {
            Meaning::Null => Field::Absent,
            Meaning::Bool(value) => Field::Stated(Stated { at: node.at, value }),
            Meaning::Integer(_) | Meaning::Float(_) | Meaning::Text => {
                self.invalid(node, path, "true or false")
            }
        }
    }

    /// Reads `true`, `false`, or the name of another limit.
    fn inherit(&mut self, node: &Node, path: &Path<'_>) -> Field<RawInherit> {
        match &node.content {
            Content::Scalar(scalar) if !matches!(scalar.meaning(), Meaning::Bool(_)) => {
                self.text(node, path).map(RawInherit::Named)
            }
            Content::Scalar(_) | Content::List(_) | Content::Map(_) => {
                let inherit = |is_above| if is_above { RawInherit::Above } else { RawInherit::No };
                self.flag(node, path).map(inherit)
            }
        }
    }

    fn mapping(&mut self, node: &Node, path: &Path<'_>) -> Field<Node> {
        match &node.content {
            Content::Map(_) => Field::Stated(Stated { at: node.at, value: node.clone() }),
            _ if is_null(node) => Field::Absent,
            Content::Scalar(_) | Content::List(_) => self.invalid(node, path, "a mapping"),
        }
    }

    fn invalid<T>(&mut self, node: &Node, path: &Path<'_>, expected: &str) -> Field<T> {
        self.wrong_type(node, path, expected);
        Field::Invalid
    }

    pub(in crate::config) fn wrong_type(&mut self, node: &Node, path: &Path<'_>, expected: &str) {
        let message = format!("expected {expected}, found {}", describe(node));
        self.problems.error(self.file, node.at, path, message);
    }
}

/// Reads each type by a method of [`Reader`], to which a section is named.
macro_rules! read_by {
    ($($method:ident $(($section:ident))?: $type:ty as $shape:expr,)*) => {
        $(impl KeyValue for Field<$type> {
            const SHAPE: Shape = $shape;

            fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Self {
                reader.$method(node, path $(, Section::$section)?)
            }

            fn is_present(&self) -> bool {
                Field::is_present(self)
            }

            fn at(&self) -> Option<Position> {
                Field::at(self)
            }
        })*
    };
}

read_by! {
    text: Rc<str> as Shape::Text,
    texts: Vec<Stated<Rc<str>>> as Shape::Texts,
    number: u32 as Shape::Number,
    hits: u64 as Shape::Hits,
    flag: bool as Shape::Flag,
    ratio: f64 as Shape::Ratio,
    percent: u8 as Shape::Ratio,
    share: EnforcedShare as Shape::Percent,
    thresholds: Vec<u16> as Shape::Percentages,
    inherit: RawInherit as Shape::Text,
    mapping: Node as Shape::Mapping,
    carry: RawCarry as Shape::FlagOrSection(Section::Carry),
    section(Ban): RawBan as Shape::Section(Section::Ban),
    section(Reserve): RawReserve as Shape::Section(Section::Reserve),
    section(LoadShedding): RawShedding as Shape::Section(Section::LoadShedding),
    section(RateLimit): RawRateLimit as Shape::Section(Section::RateLimit),
    candidate: Box<Stated<RawRateLimit>> as Shape::Section(Section::Candidate),
    limits: Vec<RawLimit> as Shape::Sections(Section::RateLimit),
}

/// The value of a node whose content was read, unless a part of it is invalid.
pub(super) fn stated_if<T>(is_valid: bool, node: &Node, value: T) -> Field<T> {
    match is_valid {
        true => Field::Stated(Stated { at: node.at, value }),
        false => Field::Invalid,
    }
}

pub(super) fn is_null(node: &Node) -> bool {
    matches!(&node.content, Content::Scalar(scalar) if scalar.meaning() == Meaning::Null)
}
