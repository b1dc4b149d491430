//! Routes of the HTTP ports.

use axum::Router;
use tollgate_metrics::Exporter;

use super::{instance::Instance, stores::AdminStore, tasks::TaskViews};
use crate::{
    grpc::service::UnaryService,
    http::{self, AdminParts, ApiParts, DescriptorError, PublicParts, Tokens},
    regions::Regions,
    settings::{AdminSettings, Settings},
};

/// Sources of the routes.
pub(super) struct Routes<'a> {
    pub(super) settings: &'a Settings,
    pub(super) instance: &'a Instance,
    /// Rendered by `/metrics`.
    pub(super) exporter: Option<&'a Exporter>,
}

impl Routes<'_> {
    /// Routes of the public port, with `rate_limit` behind `/json`.
    pub(super) fn public<T: UnaryService>(&self, rate_limit: T) -> Result<Router, DescriptorError> {
        http::public_router(PublicParts {
            rate_limit,
            readiness: self.instance.readiness.clone(),
            exporter: self.exporter.cloned(),
            max_body: self.settings.grpc.max_message_bytes,
        })
    }

    /// Routes of the metrics port, if there are settings of one.
    pub(super) fn metrics(&self) -> Option<Router> {
        let path = &self.settings.metrics.as_ref()?.path;
        Some(http::metrics_router(path.clone(), self.exporter.cloned()))
    }

    /// Routes of the admin port.
    pub(super) fn admin(
        &self,
        tokens: Option<Tokens>,
        AdminStore { counters, facts }: AdminStore,
        TaskViews { fleet, rollouts }: TaskViews,
        regions: Option<Regions>,
    ) -> Router {
        let Self { settings, instance, exporter } = self;
        let api = ApiParts {
            control: instance.control.clone(),
            status: instance.status.clone(),
            rules: instance.rules.clone(),
            options: settings.rules.options,
            bounds: settings.bounds,
            directory: settings.rules.directory.clone(),
            readiness: instance.readiness.clone(),
            counters,
            fleet,
            rollouts,
            store: facts,
            regions,
        };
        let requires_client_certificate =
            settings.admin.as_ref().is_some_and(AdminSettings::requires_client_certificate);
        http::admin_router(AdminParts {
            api,
            exporter: exporter.cloned(),
            tokens,
            requires_client_certificate,
        })
    }
}
