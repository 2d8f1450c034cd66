# A SIMULATED machine of a pool: sshd without privileges, keys only, and the programs that stand in for the real ones.
# Build the service first; what runs here is the same release of the same package.
#   docker build -f docker/pool-host.Dockerfile -t tuneloop-pool-host:0.1.0 .
ARG SERVICE=tuneloop-service:0.1.0

FROM ${SERVICE}
USER 0:0
RUN apt-get update \
 && apt-get install -y --no-install-recommends openssh-server \
 && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* \
 && usermod --home /data --shell /bin/sh tuneloop \
 && install -d -o tuneloop -g tuneloop -m 0700 /keys/host \
 && install -d -o tuneloop -g tuneloop -m 0755 /data
COPY docker/sshd_config /etc/ssh/tuneloop_sshd_config
USER 10001:10001
WORKDIR /data
EXPOSE 2222
ENTRYPOINT ["/usr/sbin/sshd"]
CMD ["-D", "-e", "-f", "/etc/ssh/tuneloop_sshd_config"]
