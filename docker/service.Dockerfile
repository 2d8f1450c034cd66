# The tuning service and its commands. Build from the repository's root:
#   docker build -f docker/service.Dockerfile -t tuneloop-service:0.1.0 .
ARG PYTHON=3.11.13-slim-bookworm

FROM python:${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY docker/build.lock docker/requirements.lock docker/
# Every file that is installed is known by its hash, the builder of our own wheel included.
RUN python -m venv --without-pip /opt/tuneloop \
 && pip --python /opt/tuneloop/bin/python install --require-hashes --only-binary :all: -r docker/requirements.lock \
 && pip install --require-hashes --only-binary :all: -r docker/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY experiments/ experiments/
COPY executor/ executor/
COPY state/ state/
COPY prompts/ prompts/
COPY agent/ agent/
RUN pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
 && pip --python /opt/tuneloop/bin/python install --no-deps --no-index dist/*.whl \
 && find /opt/tuneloop -type d -name tests -prune -exec rm -r {} +

FROM python:${PYTHON}
RUN groupadd --gid 10001 tuneloop \
 && useradd --uid 10001 --gid 10001 --home-dir /studies --no-create-home --shell /usr/sbin/nologin tuneloop \
 && install -d -o tuneloop -g tuneloop -m 0755 /studies \
 && install -d -o tuneloop -g tuneloop -m 0700 /keys /keys/service /keys/p0 /keys/d0 /keys/database
COPY --from=build /opt/tuneloop /opt/tuneloop
COPY docker/first_start.py /opt/tuneloop/first_start.py
ENV PATH=/opt/tuneloop/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MPLCONFIGDIR=/tmp
USER 10001:10001
WORKDIR /studies
STOPSIGNAL SIGTERM
ENTRYPOINT ["tuneloop"]
CMD ["serve", "/studies/service.yaml"]
