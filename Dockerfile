# The command line with buckets and Dask, as docs/machines.md runs it: `make dist`, then
# `docker build -t ckpt-surgery .`
FROM python:3.13-slim

COPY constraints.txt dist/*.whl /tmp/
RUN wheel=$(echo /tmp/*.whl) \
    && pip install --no-cache-dir -c /tmp/constraints.txt "$wheel[remote,dask]" \
    && rm /tmp/constraints.txt "$wheel"

# Paths of the commands are relative to what is mounted here: `docker run -v "$PWD:/data" ckpt-surgery …`.
WORKDIR /data
USER 1000:1000
ENTRYPOINT ["ckpt-surgery"]
CMD ["--help"]
