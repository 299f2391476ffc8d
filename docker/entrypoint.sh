#!/bin/bash
# What a container of this image runs. Spark on Kubernetes starts its pods with the word `driver` or
# `executor` and says the rest by the environment; any other words are those of `das`.
set -e

case "${1:-}" in
  driver)
    shift
    exec "$SPARK_HOME/bin/spark-submit" \
      --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
      --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
      --deploy-mode client "$@"
    ;;
  executor)
    # Java options come one a variable, SPARK_JAVA_OPT_0 and so on.
    options=()
    while read -r name; do
      options+=("${!name}")
    done < <(compgen -e SPARK_JAVA_OPT_ | sort -t_ -k4 -n)
    class_path="${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_HOME/jars/*"
    [ -z "$SPARK_CLASSPATH" ] || class_path="$class_path:$SPARK_CLASSPATH"
    exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" "${options[@]}" \
      "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$class_path" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" \
      --executor-id "$SPARK_EXECUTOR_ID" \
      --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" \
      --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
      --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  spark-submit | spark-class | bash)
    exec "$@"
    ;;
  *)
    exec das "${@:---help}"
    ;;
esac
