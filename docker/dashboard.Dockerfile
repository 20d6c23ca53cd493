# Dashboard and metrics. From the project's root:
# docker build -f docker/dashboard.Dockerfile -t rewardpool-dashboard .
FROM python:3.11.14-slim-bookworm AS build
WORKDIR /src
COPY setup.cfg pyproject.toml constraints.txt README.md LICENSE ./
COPY worker worker
COPY limiter limiter
COPY queue_client queue_client
COPY lua lua
RUN python -m venv /opt/rewardpool \
    && /opt/rewardpool/bin/pip install --no-cache-dir --constraint constraints.txt ".[worker,dashboard,metrics]"

FROM python:3.11.14-slim-bookworm
COPY --from=build /opt/rewardpool /opt/rewardpool
ENV PATH=/opt/rewardpool/bin:$PATH \
    HOME=/tmp \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /srv
EXPOSE 9181 9182
HEALTHCHECK --interval=15s --timeout=10s --start-period=15s --retries=3 \
    CMD ["python", "-m", "worker.ops.health", "http://127.0.0.1:9181/healthz"]
ENTRYPOINT ["rewardpool"]
# Needs REWARDPOOL_DASHBOARD_PASSWORD: other machines reach this address.
CMD ["dashboard", "--bind", "0.0.0.0", "--user", "operator"]
