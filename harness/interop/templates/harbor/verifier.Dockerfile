FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends bubblewrap g++ git \
 && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir {requirement}
COPY . /tests
