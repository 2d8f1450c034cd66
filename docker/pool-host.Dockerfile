# A SIMULATED machine of a pool: sshd without privileges, keys only, and the programs that stand in for the real ones.
# The stage `build` is that of service.Dockerfile, to the letter, so that it is built once. From the repository's root:
#   docker build -f docker/pool-host.Dockerfile -t tuneloop-pool-host:0.1.0 .
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
RUN apt-get update \
 && apt-get install -y --no-install-recommends openssh-server \
 && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* \
 && groupadd --gid 10001 tuneloop \
 && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home --shell /bin/sh tuneloop \
 && install -d -o tuneloop -g tuneloop -m 0700 /keys /keys/host \
 && install -d -o tuneloop -g tuneloop -m 0755 /data
COPY --from=build /opt/tuneloop /opt/tuneloop
COPY docker/sshd_config /etc/ssh/tuneloop_sshd_config
ENV PATH=/opt/tuneloop/bin:/usr/local/bin:/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /data
EXPOSE 2222
ENTRYPOINT ["/usr/sbin/sshd"]
CMD ["-D", "-e", "-f", "/etc/ssh/tuneloop_sshd_config"]
