FROM {base}
RUN mkdir -p {project}
WORKDIR {project}
