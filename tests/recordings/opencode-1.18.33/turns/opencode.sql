CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1deda442b001okx7Gt3diuWcuU','ses_e2125bc32ffechkcPyJxite6pl',1794740208683,1794740209922,'{"role":"user","time":{"created":1794740208683},"agent":"build","model":{"providerID":"mock","modelID":"mock-model"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1deda48b2001zn1Eow0wmy03UP','ses_e2125bc32ffechkcPyJxite6pl',1794740209842,1794740210690,'{"parentID":"msg_1deda442b001okx7Gt3diuWcuU","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740209842,"completed":1794740210689},"finish":"stop"}');
INSERT INTO "message" VALUES('msg_1deda5c9d001j0YrUdHOWA2Saf','ses_e2125bc32ffechkcPyJxite6pl',1794740214941,1794740216566,'{"role":"user","time":{"created":1794740214941},"agent":"build","model":{"providerID":"mock","modelID":"mock-model"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1deda62c0001b4QY7RSGq0NhkJ','ses_e2125bc32ffechkcPyJxite6pl',1794740216512,1794740217989,'{"parentID":"msg_1deda5c9d001j0YrUdHOWA2Saf","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740216512,"completed":1794740217987},"finish":"stop"}');
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1deda44330017HIXW6JeJ9skH6','msg_1deda442b001okx7Gt3diuWcuU','ses_e2125bc32ffechkcPyJxite6pl',1794740208696,1794740208697,'{"type":"text","text":"turn one"}');
INSERT INTO "part" VALUES('prt_1deda4bd80013Fe8asLVFaAJAj','msg_1deda48b2001zn1Eow0wmy03UP','ses_e2125bc32ffechkcPyJxite6pl',1794740210648,1794740210650,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1deda4bdc001C2Ihf5l4RoTqxs','msg_1deda48b2001zn1Eow0wmy03UP','ses_e2125bc32ffechkcPyJxite6pl',1794740210652,1794740210657,'{"type":"text","text":"First.","time":{"start":1794740210652,"end":1794740210656}}');
INSERT INTO "part" VALUES('prt_1deda4be5001ITc3o2LE215obC','msg_1deda48b2001zn1Eow0wmy03UP','ses_e2125bc32ffechkcPyJxite6pl',1794740210661,1794740210665,'{"reason":"stop","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
INSERT INTO "part" VALUES('prt_1deda5ca1001sDNv5bNEV5oulC','msg_1deda5c9d001j0YrUdHOWA2Saf','ses_e2125bc32ffechkcPyJxite6pl',1794740214967,1794740214970,'{"type":"text","text":"turn two"}');
INSERT INTO "part" VALUES('prt_1deda6861001Wz2ewUo1lXQIi4','msg_1deda62c0001b4QY7RSGq0NhkJ','ses_e2125bc32ffechkcPyJxite6pl',1794740217953,1794740217955,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1deda6867001NtqJMEeza3SQqi','msg_1deda62c0001b4QY7RSGq0NhkJ','ses_e2125bc32ffechkcPyJxite6pl',1794740217959,1794740217971,'{"type":"text","text":"Second.","time":{"start":1794740217959,"end":1794740217970}}');
INSERT INTO "part" VALUES('prt_1deda6877001wnm1ZttHfBn8BF','msg_1deda62c0001b4QY7RSGq0NhkJ','ses_e2125bc32ffechkcPyJxite6pl',1794740217976,1794740217977,'{"reason":"stop","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
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
INSERT INTO "session" VALUES('ses_e2125bc32ffechkcPyJxite6pl','global',NULL,NULL,'sunny-circuit','/workspace','workspace','assay','1.18.33',NULL,0,0,0,NULL,NULL,0.0012,200,40,0,0,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"mock-model","providerID":"mock","variant":"default"}',1794740208590,1794740218035,NULL,NULL);
