# A worker. From the project's root: docker build -f docker/worker.Dockerfile -t rewardpool-worker .
FROM python:3.11.14-slim-bookworm AS build
# Add `tokenizer` for rows that come as ids; a reward model needs a torch of your choice besides.
ARG EXTRAS=worker,math
WORKDIR /src
COPY setup.cfg pyproject.toml constraints.txt README.md LICENSE ./
COPY worker worker
COPY limiter limiter
COPY queue_client queue_client
COPY lua lua
RUN python -m venv /opt/rewardpool \
    && /opt/rewardpool/bin/pip install --no-cache-dir --constraint constraints.txt ".[${EXTRAS}]"

FROM python:3.11.14-slim-bookworm
COPY --from=build /opt/rewardpool /opt/rewardpool
# hadolint ignore=DL3064
ENV PATH=/opt/rewardpool/bin:$PATH \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    OMP_NUM_THREADS=1 \
    TOKENIZERS_PARALLELISM=false
# Nobody's user: it owns no file of the image.
USER 10001:10001
WORKDIR /srv
HEALTHCHECK --interval=15s --timeout=10s --start-period=60s --retries=3 \
    CMD ["python", "-m", "worker.ops.health"]
# SIGTERM finishes what is in flight for worker.stop_s (25 s) at most; stop with more patience.
STOPSIGNAL SIGTERM
ENTRYPOINT ["rewardpool"]
CMD ["worker", "rewards"]
