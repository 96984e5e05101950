CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1ded921ac001RJsyI4l6jva2xP','ses_e2126e0f4ffeJnIY3Jle2CxHAh',1794740134316,1794740139419,'{"role":"user","time":{"created":1794740134316},"agent":"build","model":{"providerID":"mock","modelID":"mock-model"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1ded9355500136viRiFHz8Fhhe','ses_e2126e0f4ffeJnIY3Jle2CxHAh',1794740139349,1794740140750,'{"parentID":"msg_1ded921ac001RJsyI4l6jva2xP","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.000951,"tokens":{"total":205,"input":128,"output":30,"reasoning":7,"cache":{"write":0,"read":40}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740139349,"completed":1794740140749},"finish":"stop"}');
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1ded921b6001Wrb3XsxWNStlu4','msg_1ded921ac001RJsyI4l6jva2xP','ses_e2126e0f4ffeJnIY3Jle2CxHAh',1794740134331,1794740134337,'{"type":"text","text":"Do it."}');
INSERT INTO "part" VALUES('prt_1ded93a8d001RSwKhcTaZCEBT7','msg_1ded9355500136viRiFHz8Fhhe','ses_e2126e0f4ffeJnIY3Jle2CxHAh',1794740140685,1794740140687,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1ded93a98001nqR42Gxb4N2KfU','msg_1ded9355500136viRiFHz8Fhhe','ses_e2126e0f4ffeJnIY3Jle2CxHAh',1794740140696,1794740140707,'{"type":"reasoning","text":"I add.","time":{"start":1794740140696,"end":1794740140706}}');
INSERT INTO "part" VALUES('prt_1ded93aaa001xztC1hNjKwK8xq','msg_1ded9355500136viRiFHz8Fhhe','ses_e2126e0f4ffeJnIY3Jle2CxHAh',1794740140715,1794740140724,'{"type":"text","text":"Four ✓.","time":{"start":1794740140714,"end":1794740140723}}');
INSERT INTO "part" VALUES('prt_1ded93abc001zbh9XTq16ZS0h4','msg_1ded9355500136viRiFHz8Fhhe','ses_e2126e0f4ffeJnIY3Jle2CxHAh',1794740140732,1794740140734,'{"reason":"stop","type":"step-finish","tokens":{"total":205,"input":128,"output":30,"reasoning":7,"cache":{"write":0,"read":40}},"cost":0.000951}');
CREATE TABLE `session` (
          `id` text PRIMARY KEY,
          `project_id` text NOT NULL,
          `workspace_id` text,
          `parent_id` text,
          `slug` text NOT NULL,
          `directory` text NOT NULL,
          `path` text,
          `title` text NOT NULL,
          `version` text NOT NULL,
          `share_url` text,
          `summary_additions` integer,
          `summary_deletions` integer,
          `summary_files` integer,
          `summary_diffs` text,
          `metadata` text,
          `cost` real DEFAULT 0 NOT NULL,
          `tokens_input` integer DEFAULT 0 NOT NULL,
          `tokens_output` integer DEFAULT 0 NOT NULL,
          `tokens_reasoning` integer DEFAULT 0 NOT NULL,
          `tokens_cache_read` integer DEFAULT 0 NOT NULL,
          `tokens_cache_write` integer DEFAULT 0 NOT NULL,
          `revert` text,
          `permission` text,
          `agent` text,
          `model` text,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `time_compacting` integer,
          `time_archived` integer,
          CONSTRAINT `fk_session_project_id_project_id_fk` FOREIGN KEY (`project_id`) REFERENCES `project`(`id`) ON DELETE CASCADE
        );
INSERT INTO "session" VALUES('ses_e2126e0f4ffeJnIY3Jle2CxHAh','global',NULL,NULL,'curious-mountain','/workspace','workspace','assay','1.18.33',NULL,0,0,0,NULL,NULL,0.000951,128,30,7,40,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"mock-model","providerID":"mock","variant":"default"}',1794740133643,1794740140789,NULL,NULL);
